// What a timeline draws, without a screen: rows of spans, those in view, one rectangle for many.
//
// Pure: no document, no canvas, no other module. The notebook's timeline and the JupyterLab panel
// both draw what comes from here, and node tests it. Times are numbers of one unit (nanoseconds
// since the first span), spans are columns: typed arrays of one length.

export const ROW = 16; // height of a row of spans
export const HEAD = 20; // height of a process's heading
const GAP = 4; // below a lane

// Columns of span objects ({name, kind, start, end, pid, process, lane, lane_name, trace}), as the
// control API has them; lanes and processes in the order in which they appear.
export function pack(spans) {
  const count = spans.length;
  const columns = {
    start: new Float64Array(count), end: new Float64Array(count), lane: new Uint32Array(count),
    name: new Uint32Array(count), kind: new Uint8Array(count), trace: new Uint32Array(count),
  };
  const names = new Map(), kinds = new Map(), lanes = new Map();
  let origin = Infinity;
  for (const span of spans) origin = Math.min(origin, span.start);
  if (!count) origin = 0;
  spans.forEach((span, index) => {
    columns.start[index] = span.start - origin;
    columns.end[index] = Math.max(span.end, span.start) - origin;
    columns.trace[index] = span.trace;
    columns.name[index] = numbered(names, span.name);
    columns.kind[index] = numbered(kinds, span.kind);
    const key = `${span.pid}/${span.lane}`;
    if (!lanes.has(key)) {
      lanes.set(key, {
        index: lanes.size, pid: span.pid, process: span.process, name: span.lane_name,
      });
    }
    columns.lane[index] = lanes.get(key).index;
  });
  return {
    columns, origin, names: [...names.keys()], kinds: [...kinds.keys()],
    lanes: [...lanes.values()].map(({ pid, process, name }) => ({ pid, process, name })),
  };
}

function numbered(known, value) {
  let number = known.get(value);
  if (number === undefined) known.set(value, (number = known.size));
  return number;
}

// Rows: in each lane a span lies one row below the one it lies in. Spans of a row never overlap,
// so both their starts and their ends grow, and either can be searched.
export function layOut(columns, lanes) {
  const { start, end, lane } = columns;
  const count = start.length;
  const order = new Uint32Array(count);
  for (let index = 0; index < count; index++) order[index] = index;
  order.sort((a, b) => lane[a] - lane[b] || start[a] - start[b] || end[b] - end[a] || a - b);
  const depth = new Uint16Array(count);
  const depths = new Uint16Array(lanes.length);
  let current = -1, open = [];
  for (const index of order) {
    if (lane[index] !== current) {
      current = lane[index];
      open = [];
    }
    // The first row that is free: nested spans go down, what only touches stays up.
    let level = 0;
    while (level < open.length && open[level] > start[index]) level++;
    open[level] = end[index];
    depth[index] = level;
    depths[current] = Math.max(depths[current], level + 1);
  }
  return arranged(columns, lanes, order, depth, depths);
}

function arranged(columns, lanes, order, depth, depths) {
  const places = lanes.map((one, index) => ({ ...one, index, rows: depths[index] || 1 }));
  // A process's lanes lie together, in the order in which the process first appears.
  const processes = new Map();
  for (const place of places) {
    if (!processes.has(place.pid)) processes.set(place.pid, []);
    processes.get(place.pid).push(place);
  }
  const rows = [], heads = [];
  const firstRow = new Uint32Array(lanes.length);
  let top = 0;
  for (const [pid, members] of processes) {
    heads.push({ pid, process: members[0].process, y: top });
    top += HEAD;
    for (const place of members) {
      firstRow[place.index] = rows.length;
      for (let level = 0; level < place.rows; level++) {
        rows.push({ y: top, lane: place.index, depth: level, from: 0, to: 0 });
        top += ROW;
      }
      top += GAP;
    }
  }
  const row = new Uint32Array(order.length);
  for (const index of order) {
    row[index] = firstRow[columns.lane[index]] + depth[index];
    rows[row[index]].to++;
  }
  let at = 0;
  for (const one of rows) {
    one.from = at;
    at += one.to;
    one.to = one.from;
  }
  const spans = new Uint32Array(order.length);
  for (const index of order) spans[rows[row[index]].to++] = index;
  const starts = new Float64Array(order.length), ends = new Float64Array(order.length);
  let last = 0, first = order.length ? Infinity : 0;
  for (let place = 0; place < spans.length; place++) {
    starts[place] = columns.start[spans[place]];
    ends[place] = columns.end[spans[place]];
    last = Math.max(last, ends[place]);
    first = Math.min(first, starts[place]);
  }
  return { columns, lanes, rows, heads, spans, starts, ends, row, height: top, first, last };
}

// The first place in from … to whose value is above `value`.
export function above(values, value, from, to) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] > value) to = middle;
    else from = middle + 1;
  }
  return from;
}

// Rectangles of the spans between the times t0 and t1 on `width` pixels, of the rows in view
// between the heights y0 and y1. Spans that share a pixel become one; `first` is one of them,
// `count` how many. At most one rectangle a pixel and row, however many spans there are.
export function visible(layout, { t0, t1, width, y0 = 0, y1 = Infinity }, flags = null) {
  const scale = width / Math.max(t1 - t0, 1e-9);
  const found = [];
  const kind = layout.columns.kind, name = layout.columns.name;
  for (let number = 0; number < layout.rows.length; number++) {
    const { y, from, to } = layout.rows[number];
    if (y + ROW < y0) continue;
    if (y > y1) break;
    let place = above(layout.ends, t0, from, to);
    // A span without length that begins at t0 ends there, too.
    while (place > from && layout.starts[place - 1] >= t0) place--;
    let merged = null;
    while (place < to && layout.starts[place] <= t1) {
      const x = (layout.starts[place] - t0) * scale;
      const right = (layout.ends[place] - t0) * scale;
      const span = layout.spans[place];
      const marked = flags ? flags[name[span]] : 1;
      if (right - x >= 1) {
        const left = Math.max(x, -1);
        found.push({
          row: number, x: left, width: Math.min(right, width + 1) - left, span, count: 1, marked,
        });
        merged = null;
        place++;
        continue;
      }
      const pixel = Math.floor(x);
      const next = Math.max(above(layout.starts, t0 + (pixel + 1) / scale, place, to), place + 1);
      // Only the last of them can be long enough to be drawn for itself.
      const long = (layout.ends[next - 1] - layout.starts[next - 1]) * scale >= 1;
      const stop = long && next - 1 > place ? next - 1 : next;
      let any = marked;
      for (let other = place; flags && !any && other < stop; other++) {
        any = flags[name[layout.spans[other]]];
      }
      if (merged && merged.row === number && merged.x + merged.width >= pixel
        && kind[merged.span] === kind[span] && merged.marked === any) {
        merged.width = Math.max(merged.width, pixel + 1 - merged.x);
        merged.count += stop - place;
      } else {
        merged = { row: number, x: pixel, width: 1, span, count: stop - place, marked: any };
        found.push(merged);
      }
      place = stop;
    }
  }
  return found;
}

// The span at a time and a height, -1 where there is none; `slack` is the time of a pixel or two.
export function spanAt(layout, time, y, slack = 0) {
  for (const { y: top, from, to } of layout.rows) {
    if (y < top || y >= top + ROW) continue;
    const place = above(layout.ends, time - slack, from, to);
    let best = -1, nearest = slack;
    for (let other = place; other < Math.min(place + 3, to); other++) {
      const away = Math.max(layout.starts[other] - time, time - layout.ends[other], 0);
      if (away <= nearest) {
        nearest = away;
        best = layout.spans[other];
        if (!away) break;
      }
    }
    return best;
  }
  return -1;
}

// What happened between two times: how often each name, how long in all; and how long each process
// was at it (its outermost spans, clipped). Names with the most time come first.
export function summarise(layout, t0, t1, names) {
  const counts = new Map(), busy = new Map();
  for (const { from, to, depth, lane } of layout.rows) {
    const pid = layout.lanes[lane].pid;
    for (let place = above(layout.ends, t0, from, to); place < to; place++) {
      if (layout.starts[place] > t1) break;
      const taken = Math.min(layout.ends[place], t1) - Math.max(layout.starts[place], t0);
      const name = layout.columns.name[layout.spans[place]];
      const entry = counts.get(name) || { name: names[name], count: 0, total: 0, longest: 0 };
      entry.count++;
      entry.total += taken;
      entry.longest = Math.max(entry.longest, taken);
      counts.set(name, entry);
      if (depth === 0) {
        const share = busy.get(pid) || { pid, process: layout.lanes[lane].process, total: 0 };
        share.total += taken;
        busy.set(pid, share);
      }
    }
  }
  const most = (a, b) => b.total - a.total;
  return {
    seconds: (t1 - t0) / 1e9,
    names: [...counts.values()].sort(most), processes: [...busy.values()].sort(most),
  };
}

// Flags by name: 1 where a name contains the text. Empty text gives null: everything.
export function matching(names, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  return Uint8Array.from(names, (name) => (name.toLowerCase().includes(wanted) ? 1 : 0));
}

// Indexes of the spans that match, by start.
export function matches(layout, flags) {
  if (!flags) return [];
  const found = [];
  const { name, start } = layout.columns;
  for (let index = 0; index < name.length; index++) if (flags[name[index]]) found.push(index);
  return found.sort((a, b) => start[a] - start[b]);
}

// A view that shows all of it, with a little room at both ends.
export function fitted(layout) {
  const length = Math.max(layout.last - layout.first, 1000);
  return { t0: layout.first - length * 0.01, t1: layout.last + length * 0.01 };
}

// The view after zooming by `factor` (below 1: closer) around the time `at`. Never closer than a
// hundred nanoseconds, nor further than ten times everything.
export function zoomed(layout, view, factor, at) {
  const whole = Math.max(layout.last - layout.first, 1000);
  const length = Math.min(Math.max((view.t1 - view.t0) * factor, 100), whole * 10);
  const share = (at - view.t0) / (view.t1 - view.t0);
  return { t0: at - length * share, t1: at + length * (1 - share) };
}

// The view moved by a share of its own length; some of the spans stay in sight.
export function moved(layout, view, share) {
  const length = view.t1 - view.t0;
  let t0 = view.t0 + length * share;
  t0 = Math.min(Math.max(t0, layout.first - length * 0.9), layout.last - length * 0.1);
  return { t0, t1: t0 + length };
}

// Round times between t0 and t1, about one each `apart` pixels.
export function ticks(t0, t1, width, apart = 110) {
  const rough = ((t1 - t0) / width) * apart;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(t0 / step); at * step <= t1; at++) found.push(at * step);
  return { step, at: found };
}

// Nanoseconds as a person says them; `step` is the least difference that must show.
export function duration(ns, step = 0) {
  const size = Math.abs(ns);
  const [unit, word] = size < 1e3 ? [1, "ns"] : size < 1e6 ? [1e3, "µs"]
    : size < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  const value = ns / unit;
  if (step) {
    const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
    return `${value.toFixed(Math.min(digits, 9))} ${word}`;
  }
  const digits = unit === 1 ? 0 : Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${word}`;
}
