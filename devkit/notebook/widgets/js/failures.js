// devkit.failures: what raised or died; a row opens to its source lines, locals and last words.
import { h, table } from "./page.js";
import { inspection, questions } from "./tensors.js";

function frame(one, open) {
  const lines = one.source.map(({ number, text }) =>
    h("div", { class: number === one.line ? "dk-line dk-here" : "dk-line" },
      h("span", { class: "dk-number" }, String(number)), text || " "));
  const locals = Object.entries(one.locals);
  return h("details", { class: "dk-frame", open },
    h("summary", {}, h("span", { class: "dk-name" }, one.function), " ",
      h("span", { class: "dk-dim dk-code" }, `${one.file}:${one.line}`)),
    h("div", { class: "dk-source" }, lines),
    locals.length ? h("table", { class: "dk-facts dk-code" },
      locals.map(([name, value]) => h("tr", {}, h("th", {}, name), h("td", {}, value)))) : null);
}

function details(one, ask, ends) {
  const place = h("div", { class: "dk-shown" });
  const told = h("div", { class: "dk-told", role: "status" });
  const button = (text, title, message, done) => h("button", {
    class: "dk-button", title, onclick: () => {
      told.textContent = `${text}…`;
      ask({ ...message, number: one.info.number }, (answer) => {
        told.textContent = answer.error || "";
        if (!answer.error) done(answer);
      });
    },
  }, text);
  const replayed = ({ report }) => place.replaceChildren(
    h("div", { class: `dk-verdict dk-${report.verdict}` }, report.summary),
    h("div", { class: "dk-wide" },
      table(["request", "output", "verdict", "took", "what"], report.rows, [0, 3])));
  const looked = ({ data }) => {
    const inner = (message, done) => ask({ ...message, number: one.info.number }, done);
    place.replaceChildren(inspection(data, inner, ends));
  };
  return h("div", { class: "dk-details" },
    h("div", { class: "dk-error" }, one.error),
    one.info.ending ? h("div", { class: "dk-error" }, one.info.ending) : null,
    h("div", { class: "dk-bar" },
      button("Inspect", "Look at the tensors of its request", { kind: "inspect" }, looked),
      button("Replay", "Send its requests to this runtime again", { kind: "replay" }, replayed),
      told),
    place,
    one.frames.map((each, index) => frame(each, index === one.frames.length - 1)),
    !one.frames.length && one.traceback
      ? h("pre", { class: "dk-words" }, one.traceback) : null,
    one.requests.map((text) => h("div", { class: "dk-dim" }, text)),
    one.log.length ? h("details", { class: "dk-frame" },
      h("summary", {}, "last lines of the process"),
      h("pre", { class: "dk-words" }, one.log.join("\n"))) : null);
}

function render({ model, el }) {
  el.classList.add("dk");
  const [ask, end] = questions(model);
  const ends = [end];
  const list = h("div", {});
  const row = (info) => {
    const body = h("div", {});
    const mark = h("span", { class: "dk-mark" }, "▸");
    const toggle = () => {
      const opened = body.childElementCount > 0;
      mark.textContent = opened ? "▸" : "▾";
      head.setAttribute("aria-expanded", String(!opened));
      if (opened) {
        body.replaceChildren();
        return;
      }
      body.replaceChildren(h("div", { class: "dk-dim" }, "…"));
      ask({ kind: "open", number: info.number }, (answer) => body.replaceChildren(
        answer.error ? h("div", { class: "dk-error" }, answer.error)
          : details(answer.failure, ask, ends)));
    };
    const head = h("button", { class: "dk-row", "aria-expanded": "false", onclick: toggle },
      mark, h("span", { class: "dk-dim" }, `${info.number} · ${info.clock}`),
      h("span", { class: "dk-name" }, info.instance),
      h("span", { class: "dk-error dk-cut" }, info.what),
      h("span", { class: "dk-dim dk-code dk-cut" }, info.where));
    return [h("section", { class: "dk-card" }, head, body), toggle];
  };
  const fill = () => {
    const rows = model.get("rows");
    const made = rows.map(row);
    list.replaceChildren(...made.map(([element]) => element));
    if (!rows.length) {
      list.append(h("div", { class: "dk-dim" },
        "No execute has raised and no process has died."));
    }
    if (rows.length === 1) made[0][1]();
  };
  el.append(h("div", { class: "dk-bar" }, h("span", { class: "dk-name" }, "Failures"),
    h("button", {
      class: "dk-button", title: "Look again",
      onclick: () => ask({ kind: "refresh" }, () => {}),
    }, "Refresh")), list);
  model.on("change:rows", fill);
  fill();
  return () => {
    model.off("change:rows", fill);
    ends.forEach((each) => each());
  };
}

export default { render };
