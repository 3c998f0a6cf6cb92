// devkit.dashboard: models, instances and memory as they are now; Python sends a state a second
// while somebody can see it.
import { h, table, bytes, short, colours, onTheme, onSight, surface } from "./page.js";

function chart(one) {
  let data = one;
  const label = h("span", { class: "dk-dim" }), now = h("span", { class: "dk-now" });
  const paper = surface(46, (context, width, height) => {
    const ink = colours(paper.canvas.parentElement);
    const values = data.values.filter((value) => value !== null);
    const most = Math.max(...values, 0) || 1;
    const step = width / Math.max(data.points - 1, 1);
    const from = data.points - data.values.length;
    context.strokeStyle = ink.line;
    context.strokeRect(0.5, height - 0.5, width, 0);
    context.strokeStyle = ink.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    let drawn = false;
    data.values.forEach((value, index) => {
      if (value === null) {
        drawn = false;
        return;
      }
      const x = (from + index) * step;
      const y = height - 2 - (value / most) * (height - 6);
      if (drawn) context.lineTo(x, y);
      else context.moveTo(x, y);
      drawn = true;
    });
    context.stroke();
  });
  const update = (next) => {
    data = next;
    const last = data.values[data.values.length - 1];
    label.textContent = data.label;
    const value = data.unit === "bytes" ? bytes(last) : short(last);
    const unit = data.unit === "bytes" || !value ? "" : ` ${data.unit.replace("per second", "/s")}`;
    now.textContent = value + unit;
    paper.again();
  };
  update(one);
  const off = onTheme(paper.again);
  return {
    update, element: h("div", { class: "dk-chart" },
      h("div", { class: "dk-bar" }, label, now), paper.canvas),
    end: () => {
      off();
      paper.end();
    },
  };
}

// Keeps a chart for each series, so that they are not made anew each second.
class Charts {
  constructor() {
    this.made = new Map();
  }
  elements(list) {
    return list.map((one) => {
      let known = this.made.get(one.key);
      if (known) known.update(one);
      else this.made.set(one.key, (known = chart(one)));
      return known.element;
    });
  }
  end() {
    for (const one of this.made.values()) one.end();
  }
}

function state(text) {
  const tone = { ready: "good", READY: "good", busy: "busy", debugging: "busy", dead: "bad" };
  return h("span", { class: `dk-state dk-${tone[text] || "warn"}` }, text);
}

function modelCard(model, charts) {
  const rows = model.instances.map((one) => [
    one.name, state(one.state), String(one.pid || ""), one.cpu, one.rate, one.inFlight,
    one.failed, bytes(one.rss), bytes(one.pss), bytes(one.uss), bytes(one.shm),
    ...(model.gpu ? [bytes(one.gpu)] : []),
  ]);
  const columns = ["instance", "state", "pid", "CPU", "requests/s", "in flight", "errors", "RSS",
    "PSS", "USS", "shared", ...(model.gpu ? ["GPU"] : [])];
  return h("section", { class: "dk-card", "data-model": model.name },
    h("div", { class: "dk-bar" }, h("span", { class: "dk-name" }, model.name), state(model.state),
      model.facts.map((fact) => h("span", { class: "dk-dim" }, fact))),
    model.remark ? h("div", { class: "dk-note" }, model.remark) : null,
    rows.length
      ? h("div", { class: "dk-wide" }, table(columns, rows, columns.map((_, i) => i).slice(2)))
      : null,
    model.sizes.length ? h("div", { class: "dk-dim" }, "batch sizes: ",
      model.sizes.map(([size, count]) => `${size}: ${count.toLocaleString("en")}×`).join(", "))
      : null,
    model.series.length
      ? h("div", { class: "dk-charts" }, charts.elements(model.series)) : null);
}

function memoryCard(memory, charts) {
  const used = memory.total ? 1 - memory.free / memory.total : 0;
  return h("section", { class: "dk-card" },
    h("div", { class: "dk-bar" }, h("span", { class: "dk-name" }, "Shared memory"),
      h("span", { class: "dk-dim" },
        `/dev/shm: ${bytes(memory.free)} free of ${bytes(memory.total)}`)),
    h("div", { class: "dk-gauge" },
      h("div", { style: `width:${(used * 100).toFixed(1)}%` })),
    memory.warning ? h("div", { class: "dk-error" }, memory.warning) : null,
    memory.slabs.length
      ? h("div", { class: "dk-wide" }, table(
        ["slab", "of", "size", "used", "free", "highest", "blocks"],
        memory.slabs.map((one) => [one.name, one.owner, bytes(one.size), bytes(one.used),
          bytes(one.free), bytes(one.high_water), one.blocks < 0 ? "" : String(one.blocks)]),
        [2, 3, 4, 5, 6]))
      : h("div", { class: "dk-dim" }, "No slab yet: tensors of a few kilobytes travel inline."),
    h("div", { class: "dk-charts" }, charts.elements(memory.series)));
}

function render({ model, el }) {
  el.classList.add("dk");
  const charts = new Charts();
  const body = h("div", {}), head = h("div", { class: "dk-bar" });
  el.append(head, body);
  const fill = () => {
    const now = model.get("state");
    head.replaceChildren(h("span", { class: "dk-name" }, "devkit"),
      ...now.facts.map((fact) => h("span", { class: "dk-dim" }, fact)),
      h("span", { class: now.gone ? "dk-error" : "dk-dim dk-clock" }, now.gone || now.clock));
    body.classList.toggle("dk-gone", Boolean(now.gone));
    const empty = h("div", { class: "dk-dim" }, "No model is loaded.");
    body.replaceChildren(...(now.models.length
      ? now.models.map((one) => modelCard(one, charts)) : [empty]),
    memoryCard(now.memory, charts));
  };
  model.on("change:state", fill);
  fill();
  const offSight = onSight(el, (visible) => model.send({ kind: "sight", visible }));
  return () => {
    model.off("change:state", fill);
    offSight();
    charts.end();
  };
}

export default { render };
