// What tensors hold, as cards; all numbers come from Python as they are shown.
import { h, table, colours, onTheme, surface, short } from "./page.js";

const WAYS = ["auto", "table", "line", "values", "HWC", "CHW", "HW", "NHWC", "NCHW", "NHW"];

function histogram(data, ends) {
  const paper = surface(64, (context, width, height) => {
    const ink = colours(paper.canvas.parentElement);
    const most = Math.max(...data.counts, 1);
    const step = width / data.counts.length;
    context.fillStyle = ink.accent;
    data.counts.forEach((count, index) => {
      const tall = count ? Math.max(2, (count / most) * (height - 16)) : 0;
      context.fillRect(index * step, height - 14 - tall, Math.max(step - 1, 1), tall);
    });
    context.fillStyle = ink.dim;
    context.font = `11px ${ink.font}`;
    context.fillText(short(data.edges[0]), 0, height - 2);
    const last = short(data.edges[data.edges.length - 1]);
    context.fillText(last, width - context.measureText(last).width, height - 2);
  });
  ends.push(paper.end, onTheme(paper.again));
  paper.canvas.setAttribute("role", "img");
  paper.canvas.setAttribute("aria-label", "Histogram of the values");
  return h("div", { class: "dk-plot" }, paper.canvas);
}

function line(series, ends) {
  const values = [...series.lowest, ...series.highest].filter((one) => one !== null);
  const low = Math.min(...values), high = Math.max(...values);
  const paper = surface(120, (context, width, height) => {
    const ink = colours(paper.canvas.parentElement);
    const count = Math.max(series.lowest.length - 1, 1);
    const y = (value) => 4 + (1 - (value - low) / (high - low || 1)) * (height - 22);
    context.strokeStyle = ink.accent;
    context.beginPath();
    let drawn = false;
    series.lowest.forEach((least, index) => {
      const most = series.highest[index];
      if (least === null || most === null) { // a gap: nothing finite
        drawn = false;
        return;
      }
      const x = (index / count) * (width - 2) + 1;
      if (drawn) context.lineTo(x, y(least));
      else context.moveTo(x, y(least));
      if (most !== least) context.lineTo(x, y(most));
      drawn = true;
    });
    context.stroke();
    context.fillStyle = ink.dim;
    context.font = `11px ${ink.font}`;
    const step = series.step > 1 ? `, lowest and highest of each ${series.step}` : "";
    const words = values.length
      ? `${series.count.toLocaleString("en")} values, ${short(low)} to ${short(high)}${step}`
      : "no finite value";
    context.fillText(words, 0, height - 4);
  });
  ends.push(paper.end, onTheme(paper.again));
  paper.canvas.setAttribute("role", "img");
  paper.canvas.setAttribute("aria-label", "The values in order");
  return h("div", { class: "dk-plot" }, paper.canvas);
}

function grid(data) {
  const head = ["", ...(data.cells[0] || []).map((_, index) => String(index))];
  const rows = data.cells.map((row, index) => [String(index), ...row]);
  const plane = data.index ? `, of [${data.index}]` : "";
  const part = data.cells.length < data.rows || (data.cells[0] || []).length < data.columns;
  return h("div", {},
    h("div", { class: "dk-wide" }, table(head, rows, head.map((_, index) => index))),
    h("div", { class: "dk-dim" },
      `${part ? "the upper left of " : ""}${data.rows} × ${data.columns}${plane}`));
}

// One way of showing a tensor or a slice of it: whichever of these came.
export function shown(part, ends) {
  const found = [];
  if (part.picture) {
    const { png, layout, width, height, count, shown: seen, step, scaling } = part.picture;
    const more = [layout, `${scaling} as black to white`];
    if (step > 1) more.push(`every ${step}th pixel`);
    if (count > 1) more.push(`${seen} of ${count} pictures`);
    const zoom = Math.max(1, Math.floor(192 / Math.max(width, height)));
    found.push(h("img", {
      src: `data:image/png;base64,${png}`, width: width * zoom, height: height * zoom,
      class: "dk-picture", alt: `The tensor as a picture, ${layout}`,
    }), h("div", { class: "dk-dim" }, more.join(" · ")));
  }
  if (part.series) found.push(line(part.series, ends));
  if (part.table) found.push(grid(part.table));
  if (part.texts) {
    found.push(h("ol", { class: "dk-texts", start: 0 },
      part.texts.texts.map((text) => h("li", {}, text))));
    const { count, texts } = part.texts;
    if (count > texts.length) {
      found.push(h("div", { class: "dk-dim" }, `${texts.length} of ${count.toLocaleString("en")}`));
    }
  }
  if (part.text) found.push(h("pre", { class: "dk-words" }, part.text));
  return found;
}

export function comparison(one) {
  return h("div", { class: "dk-compared" },
    h("div", { class: `dk-verdict dk-${one.verdict}` }, `${one.title}: ${one.verdict}`),
    one.detail ? h("div", {}, one.detail) : null,
    one.facts.length ? h("div", { class: "dk-fields" },
      one.facts.map(([key, value]) => h("div", { class: "dk-field" },
        h("span", { class: "dk-dim" }, key), h("span", {}, value)))) : null);
}

// A tensor's card; `ask(message, answered)` speaks to Python, null where nobody would answer.
export function card(one, others, ask, ends) {
  const place = h("div", { class: "dk-shown" }, shown(one.shown, ends));
  const told = h("div", { class: "dk-told", role: "status" });
  const numbersHere = h("div", {});
  const fill = (about) => numbersHere.replaceChildren(
    h("div", { class: "dk-fields" },
      about.facts.map(([key, value, tone]) => h("div", { class: `dk-field ${tone || ""}` },
        h("span", { class: "dk-dim" }, key), h("span", {}, value)))),
    ...(about.note ? [h("div", { class: "dk-dim" }, about.note)] : []),
    h("div", { class: "dk-columns" },
      about.histogram ? histogram(about.histogram, ends) : null,
      about.frequent.length ? table(["value", "times"],
        about.frequent.map(([value, count]) => [value, count]), [1]) : null));
  fill(one);
  const tools = ask ? controls(one, others, ask, place, told, fill, ends) : null;
  return h("section", { class: "dk-card", "data-tensor": one.name },
    h("div", { class: "dk-bar" },
      h("span", { class: "dk-name" }, one.name || "array"),
      h("span", { class: "dk-code" }, one.kind),
      h("span", { class: "dk-dim" }, one.part)),
    numbersHere, place, tools, told);
}

function controls(one, others, ask, place, told, fill, ends) {
  const answered = (answer) => {
    told.textContent = answer.error || "";
    if (answer.about) fill(answer.about);
    if (answer.shown) place.replaceChildren(...shown(answer.shown, ends));
    if (answer.difference) told.replaceChildren(comparison(answer.difference));
  };
  const index = h("input", {
    class: "dk-search dk-code", placeholder: "slice, such as 0, :, 10:20", "aria-label": "Slice",
    onkeydown: (event) => {
      event.stopPropagation();
      if (event.key === "Enter") look();
    },
  });
  const way = h("select", { class: "dk-button", "aria-label": "Shown as" },
    WAYS.map((name) => h("option", { value: name }, name === "auto" ? "as it looks" : name)));
  const look = () => ask({ kind: "slice", slice: index.value, way: way.value }, answered);
  const button = (text, title, action) =>
    h("button", { class: "dk-button", title, onclick: action }, text);
  const found = [index, way, button("Show", "Show this slice", look),
    button("Any", "Show a slice somewhere in it", () =>
      ask({ kind: "any", way: way.value }, (answer) => {
        if (answer.slice) index.value = answer.slice;
        answered(answer);
      }))];
  if (one.note) {
    found.push(button("Count all", "Look at every value, where the tensor is", () =>
      ask({ kind: "exact" }, answered)));
  }
  if (others.length) {
    const other = h("select", {
      class: "dk-button", "aria-label": "Compare with",
      onchange: () => other.value !== "" && ask({ kind: "compare", with: Number(other.value) },
        answered),
    }, h("option", { value: "" }, "compare with…"),
    others.map(({ number, label }) => h("option", { value: number }, label)));
    found.push(other);
  }
  return h("div", { class: "dk-bar" }, found);
}

// Asks Python and hands each answer to whoever asked; returns [ask, end].
export function questions(model) {
  const waiting = new Map();
  let last = 0;
  const answered = (message) => {
    const done = waiting.get(message.id);
    waiting.delete(message.id);
    if (done) done(message);
  };
  model.on("msg:custom", answered);
  const ask = (message, done) => {
    waiting.set(++last, done);
    model.send({ ...message, id: last });
  };
  return [ask, () => model.off("msg:custom", answered)];
}

// An inspection: its title and a card for each tensor.
export function inspection(data, ask, ends) {
  const label = (one) => (one.part ? `${one.part}/${one.name}` : one.name || "array");
  return h("div", {},
    data.title ? h("div", { class: "dk-name" }, data.title) : null,
    data.notes.map((note) => h("div", { class: "dk-note" }, note)),
    data.tensors.map((one, number) => {
      const others = data.tensors.map((each, index) => ({ number: index, label: label(each) }))
        .filter((each) => each.number !== number);
      const mine = ask && ((message, done) => ask({ ...message, tensor: number }, done));
      return card(one, others, mine, ends);
    }),
    (data.differences || []).map(comparison));
}
