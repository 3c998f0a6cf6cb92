// devkit.timeline: spans of many processes on a canvas. What is drawn where comes from spans.js.
import {
  ROW, HEAD, layOut, visible, spanAt, summarise, matching, matches, fitted, zoomed, moved, ticks,
  duration,
} from "./spans.js";
import { h, table, colours, onTheme, surface, numbers } from "./page.js";

const RULER = 22;
const LARGEST = 440;
// By kind of span; the first of each pair on a light ground, the second on a dark one.
const KINDS = {
  request: ["#90a4c8", "#4a5f85"], receive: ["#b39ddb", "#6b55a0"], queue: ["#f0b35a", "#a9731c"],
  input: ["#80cbc4", "#2f7f78"], infer: ["#64b5f6", "#2673b8"], output: ["#a5d6a7", "#3f7f42"],
  stream: ["#a5d6a7", "#3f7f42"], send: ["#ce93d8", "#85468f"], execute: ["#42a5f5", "#1f6db0"],
  own: ["#ffab91", "#b0553a"],
};
const OTHER = ["#b0bec5", "#5f6f78"];

function columnsOf(model) {
  return {
    start: numbers(model.get("start"), Float64Array), end: numbers(model.get("end"), Float64Array),
    lane: numbers(model.get("lane"), Uint32Array), name: numbers(model.get("name"), Uint32Array),
    kind: numbers(model.get("kind"), Uint8Array), trace: numbers(model.get("trace"), Uint32Array),
  };
}

class Timeline {
  constructor(model, root) {
    this.model = model;
    this.about = model.get("about");
    this.columns = columnsOf(model);
    this.layout = layOut(this.columns, this.about.lanes);
    this.view = fitted(this.layout);
    this.flags = null;
    this.hover = -1;
    this.range = null;
    this.attributes = new Map();
    this.found = [];
    this.build(root);
    this.ends = [onTheme(() => this.recolour()), this.paper.end];
    const answered = (message) => {
      if (message.kind === "span") {
        this.attributes.set(message.index, message.attributes);
        if (this.hover === message.index) this.tell();
      }
    };
    model.on("msg:custom", answered);
    this.ends.push(() => model.off("msg:custom", answered));
    requestAnimationFrame(() => this.recolour());
  }

  build(root) {
    const height = Math.min(this.layout.height + 8, LARGEST);
    this.paper = surface(height + RULER, (context, width) => this.draw(context, width));
    this.canvas = this.paper.canvas;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Timeline of ${this.columns.start.length} spans`);
    this.search = h("input", {
      type: "search", class: "dk-search", placeholder: "Search spans ( / )", "aria-label": "Search",
      oninput: () => this.seek(), onkeydown: (event) => this.searched(event),
    });
    this.count = h("span", { class: "dk-dim" });
    this.where = h("span", { class: "dk-dim dk-where" });
    const button = (text, title, action) =>
      h("button", { class: "dk-button", title, onclick: action }, text);
    const bar = h("div", { class: "dk-bar" },
      h("span", { class: "dk-name" }, this.about.title),
      this.search, this.count,
      button("Fit", "Show everything (F)", () => this.fit()),
      button("+", "Closer (+)", () => this.zoom(0.6)),
      button("−", "Further (−)", () => this.zoom(1 / 0.6)),
      this.where);
    this.scroller = h("div", { class: "dk-scroll", style: `max-height:${height + RULER}px` },
      h("div", { style: `height:${this.layout.height + 8 + RULER}px` }, this.canvas));
    this.scroller.addEventListener("scroll", () => this.paper.again());
    this.tip = h("div", { class: "dk-tip", hidden: true });
    this.stage = h("div", { class: "dk-stage" }, this.scroller, this.tip);
    this.selection = h("div", { class: "dk-selection", hidden: true });
    root.append(bar, this.stage,
      h("div", { class: "dk-hint" },
        "Drag to move, wheel to zoom once clicked (or with Ctrl), Shift-drag to sum up a range, "
        + "double-click to see a span whole; keys: arrows, + −, F, /, Esc."),
      this.selection);
    if (this.about.summary) root.append(h("pre", { class: "dk-words" }, this.about.summary));
    this.listen();
  }

  listen() {
    const on = (name, action, options) => this.canvas.addEventListener(name, action, options);
    on("wheel", (event) => this.wheel(event), { passive: false });
    on("pointerdown", (event) => this.press(event));
    on("pointermove", (event) => this.move(event));
    on("pointerup", (event) => this.release(event));
    on("pointercancel", (event) => this.release(event));
    on("pointerleave", () => this.point(-1));
    on("dblclick", (event) => {
      const span = this.spanUnder(event);
      if (span >= 0) this.show(span);
    });
    on("keydown", (event) => this.key(event));
  }

  // --- where things are

  get width() { return this.canvas.clientWidth || 1; }
  time(x) { return this.view.t0 + (x / this.width) * (this.view.t1 - this.view.t0); }
  spanUnder(event) {
    const y = event.offsetY - RULER + this.scroller.scrollTop;
    if (event.offsetY < RULER) return -1;
    const pixel = (this.view.t1 - this.view.t0) / this.width;
    return spanAt(this.layout, this.time(event.offsetX), y, 2 * pixel);
  }

  named({ process, pid }) { return pid ? `${process} (pid ${pid})` : process; }

  look(view) {
    this.view = view;
    this.paper.again();
  }
  fit() { this.look(fitted(this.layout)); }
  zoom(factor, at = (this.view.t0 + this.view.t1) / 2) {
    this.look(zoomed(this.layout, this.view, factor, at));
  }
  show(span) {
    const start = this.columns.start[span], end = this.columns.end[span];
    const length = Math.max(end - start, 1000);
    this.look({ t0: start - length * 0.1, t1: end + length * 0.1 });
    const { y } = this.layout.rows[this.layout.row[span]];
    const { scrollTop, clientHeight } = this.scroller;
    if (y < scrollTop || y + ROW + RULER > scrollTop + clientHeight) {
      this.scroller.scrollTop = y - clientHeight / 3;
    }
  }

  // --- what a person does

  wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const ours = document.activeElement === this.canvas || event.ctrlKey || event.metaKey;
    if (!ours && !sideways) return; // the page scrolls
    event.preventDefault();
    if (sideways) {
      const by = (event.deltaX || event.deltaY) / this.width;
      this.look(moved(this.layout, this.view, by));
    } else {
      const lines = event.deltaMode === 1 ? 30 : 1;
      this.zoom(Math.exp(event.deltaY * lines * 0.0015), this.time(event.offsetX));
    }
  }

  press(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = {
      x: event.offsetX, y: event.offsetY, view: this.view, top: this.scroller.scrollTop,
      range: event.shiftKey, from: this.time(event.offsetX),
    };
  }

  move(event) {
    if (!this.drag) {
      this.point(this.spanUnder(event), event);
      return;
    }
    if (this.drag.range) {
      this.range = [this.drag.from, this.time(event.offsetX)].sort((a, b) => a - b);
      this.paper.again();
      return;
    }
    const by = (this.drag.x - event.offsetX) / this.width;
    this.scroller.scrollTop = this.drag.top + this.drag.y - event.offsetY;
    this.look(moved(this.layout, this.drag.view, by));
  }

  release(event) {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    if (drag.range && this.range) this.sum();
    else if (Math.abs(drag.x - event.offsetX) < 3 && this.range) this.unselect();
  }

  key(event) {
    const step = event.shiftKey ? 0.5 : 0.1;
    const actions = {
      ArrowLeft: () => this.look(moved(this.layout, this.view, -step)),
      ArrowRight: () => this.look(moved(this.layout, this.view, step)),
      ArrowUp: () => (this.scroller.scrollTop -= 3 * ROW),
      ArrowDown: () => (this.scroller.scrollTop += 3 * ROW),
      "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7),
      f: () => this.fit(), 0: () => this.fit(), Home: () => this.fit(),
      "/": () => this.search.focus(), Escape: () => this.unselect(),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation(); // these are commands of the notebook, too
    action();
  }

  seek() {
    this.flags = matching(this.about.names, this.search.value);
    this.found = matches(this.layout, this.flags);
    this.at = -1;
    this.count.textContent = this.flags ? `${this.found.length.toLocaleString("en")} found` : "";
    this.paper.again();
  }

  searched(event) {
    event.stopPropagation();
    if (event.key === "Escape") {
      this.search.value = "";
      this.seek();
      this.canvas.focus();
    } else if (event.key === "Enter" && this.found.length) {
      const by = event.shiftKey ? this.found.length - 1 : 1;
      this.at = (Math.max(this.at, event.shiftKey ? 0 : -1) + by) % this.found.length;
      this.count.textContent = `${this.at + 1} of ${this.found.length.toLocaleString("en")}`;
      this.show(this.found[this.at]);
    }
  }

  point(span, event) {
    if (event) this.pointer = { x: event.offsetX, y: event.offsetY };
    if (span === this.hover) {
      if (span >= 0) this.place();
      return;
    }
    this.hover = span;
    this.paper.again();
    this.tell();
    clearTimeout(this.asking);
    if (span >= 0 && !this.attributes.has(span)) {
      this.asking = setTimeout(() => this.model.send({ kind: "span", index: span }), 60);
    }
  }

  tell() {
    const span = this.hover;
    this.tip.hidden = span < 0;
    if (span < 0) return;
    const lane = this.about.lanes[this.columns.lane[span]];
    const length = this.columns.end[span] - this.columns.start[span];
    const rows = [
      ["took", duration(length)], ["from", duration(this.columns.start[span])],
      ["process", this.named(lane)], ["lane", lane.name],
    ];
    if (this.columns.trace[span]) rows.push(["request", String(this.columns.trace[span])]);
    for (const [key, value] of Object.entries(this.attributes.get(span) || {})) {
      rows.push([key, String(value)]);
    }
    this.tip.replaceChildren(
      h("div", { class: "dk-name" }, this.about.names[this.columns.name[span]]),
      h("table", { class: "dk-facts" },
        rows.map(([key, value]) => h("tr", {}, h("th", {}, key), h("td", {}, value)))));
    this.place();
  }

  place() {
    const room = this.stage.clientWidth - this.tip.offsetWidth - 4;
    this.tip.style.left = `${Math.max(0, Math.min(this.pointer.x + 14, room))}px`;
    this.tip.style.top = `${this.pointer.y + 18}px`;
  }

  sum() {
    const [t0, t1] = this.range;
    const { names, processes } = summarise(this.layout, t0, t1, this.about.names);
    const share = (total) => `${((100 * total) / Math.max(t1 - t0, 1)).toFixed(0)} %`;
    this.selection.hidden = false;
    this.selection.replaceChildren(
      h("div", { class: "dk-bar" },
        h("span", { class: "dk-name" }, `Selection of ${duration(t1 - t0)}`),
        h("button", { class: "dk-button", onclick: () => this.unselect() }, "Close"),
        h("button", { class: "dk-button", onclick: () => this.look({ t0, t1 }) }, "Zoom to it")),
      h("div", { class: "dk-columns" },
        table(["process", "busy", "share"],
          processes.map((one) => [this.named(one), duration(one.total),
            share(one.total)]), [1, 2]),
        table(["span", "count", "in all", "longest"],
          names.slice(0, 10).map((one) => [one.name, one.count.toLocaleString("en"),
            duration(one.total), duration(one.longest)]), [1, 2, 3])));
  }

  unselect() {
    this.range = null;
    this.selection.hidden = true;
    this.paper.again();
  }

  // --- drawing

  recolour() {
    this.colours = colours(this.canvas.parentElement || this.canvas);
    const tone = this.colours.dark ? 1 : 0;
    this.fills = this.about.kinds.map((kind) => (KINDS[kind] || OTHER)[tone]);
    this.paper.again();
  }

  draw(context, width) {
    const began = performance.now();
    const { colours: ink, layout, view } = this;
    if (!ink) return;
    const top = this.scroller.scrollTop;
    const shown = this.canvas.clientHeight - RULER;
    context.font = `11px ${ink.font}`;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(0, RULER, width, shown);
    context.clip();
    context.translate(0, RULER - top);
    for (const head of layout.heads) {
      context.fillStyle = ink.head;
      context.fillRect(0, head.y, width, HEAD - 4);
      context.fillStyle = ink.text;
      context.fillText(this.named(head), 6, head.y + (HEAD - 4) / 2);
    }
    const wanted = { ...view, width, y0: top, y1: top + shown };
    const rectangles = visible(layout, wanted, this.flags);
    for (const one of rectangles) this.bar(context, one);
    if (this.range) {
      const at = (time) => ((time - view.t0) / (view.t1 - view.t0)) * width;
      context.fillStyle = ink.accent;
      context.globalAlpha = 0.15;
      context.fillRect(at(this.range[0]), top, at(this.range[1]) - at(this.range[0]), shown);
      context.globalAlpha = 1;
    }
    context.restore();
    this.ruler(context, width);
    this.where.textContent = `${duration(view.t1 - view.t0)} in view`;
    // What was drawn, for whoever wants to know how much work a picture was.
    this.canvas.dataset.rectangles = rectangles.length;
    this.canvas.dataset.spans = rectangles.reduce((sum, one) => sum + one.count, 0);
    this.canvas.dataset.frames = Number(this.canvas.dataset.frames || 0) + 1;
    this.canvas.dataset.milliseconds = (performance.now() - began).toFixed(2);
    this.canvas.dataset.view = `${view.t0} ${view.t1}`;
  }

  bar(context, { row, x, width, span, marked, count }) {
    const { y } = this.layout.rows[row];
    const ink = this.colours;
    context.globalAlpha = marked ? 1 : 0.18;
    context.fillStyle = this.fills[this.columns.kind[span]];
    context.fillRect(x, y, Math.max(width - (width > 3 ? 1 : 0), 1), ROW - 2);
    if (span === this.hover || (this.flags && marked)) {
      context.strokeStyle = span === this.hover ? ink.text : ink.accent;
      context.strokeRect(x + 0.5, y + 0.5, Math.max(width - 2, 1), ROW - 3);
    }
    if (width > 24 && count === 1) {
      const text = this.about.names[this.columns.name[span]];
      const left = Math.max(x, 0) + 4;
      const room = Math.floor((x + width - left - 2) / 6);
      if (room > 2) {
        context.fillStyle = ink.text;
        context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, left, y + 7);
      }
    }
    context.globalAlpha = 1;
  }

  ruler(context, width) {
    const ink = this.colours;
    const { t0, t1 } = this.view;
    const { step, at } = ticks(t0, t1, width);
    context.fillStyle = ink.back;
    context.fillRect(0, 0, width, RULER);
    context.fillStyle = ink.dim;
    context.strokeStyle = ink.line;
    for (const time of at) {
      const x = Math.round(((time - t0) / (t1 - t0)) * width) + 0.5;
      context.beginPath();
      context.moveTo(x, RULER - 5);
      context.lineTo(x, this.canvas.clientHeight);
      context.globalAlpha = 0.5;
      context.stroke();
      context.globalAlpha = 1;
      context.fillText(duration(time, step), x + 3, RULER / 2);
    }
  }

  end() {
    clearTimeout(this.asking);
    for (const end of this.ends) end();
  }
}

function render({ model, el }) {
  el.classList.add("dk");
  const timeline = new Timeline(model, el);
  return () => timeline.end();
}

export default { render };
