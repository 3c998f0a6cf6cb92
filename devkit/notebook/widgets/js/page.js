// What the widgets share on the page: elements, colours of the theme, when something is in sight.

// An element: h("td", {class: "x", onclick}, "text", other, …). Text never becomes HTML.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((one) => one !== null && one !== undefined));
  return element;
}

export function table(columns, rows, numbers = []) {
  const cell = (tag) => (value, index) =>
    h(tag, { class: numbers.includes(index) ? "dk-num" : null }, value);
  return h("table", { class: "dk-table" },
    h("thead", {}, h("tr", {}, columns.map(cell("th")))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell("td"))))));
}

export function bytes(count) {
  if (count === null || count === undefined || count < 0) return "";
  let value = count;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000 || unit === "GB") {
      return `${value.toFixed(value >= 10 || unit === "B" ? 0 : 1)} ${unit}`;
    }
    value /= 1000;
  }
  return "";
}

export function short(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size >= 1e6 || (size && size < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(size >= 100 ? 4 : 3)));
}

// Colours as the theme has them now; a canvas needs them as text.
export function colours(element) {
  const style = getComputedStyle(element);
  const probe = document.createElement("span");
  probe.style.display = "none";
  element.append(probe);
  const read = (variable) => {
    probe.style.color = `var(${variable})`;
    return getComputedStyle(probe).color;
  };
  const found = {
    text: read("--dk-text"), dim: read("--dk-dim"), line: read("--dk-line"),
    back: read("--dk-back"), head: read("--dk-head"), accent: read("--dk-accent"),
    bad: read("--dk-bad"), font: style.fontFamily,
  };
  probe.remove();
  const [red, green, blue] = (found.back.match(/[\d.]+/g) || [255, 255, 255]).map(Number);
  found.dark = red * 0.3 + green * 0.59 + blue * 0.11 < 128;
  return found;
}

// Calls `changed` when the theme does; returns what ends that.
export function onTheme(changed) {
  const observer = new MutationObserver(changed);
  observer.observe(document.body, {
    attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "class"],
  });
  // JupyterLab loads a theme's style sheet before or after it says so.
  const sheets = new MutationObserver(changed);
  sheets.observe(document.head, { childList: true });
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    sheets.disconnect();
    media.removeEventListener("change", changed);
  };
}

// Calls `changed(true or false)` when the element comes into sight or leaves it, also with its tab.
export function onSight(element, changed) {
  let within = false, told = null;
  const tell = () => {
    const now = within && document.visibilityState === "visible";
    if (now !== told) changed((told = now));
  };
  const observer = new IntersectionObserver((entries) => {
    within = entries[entries.length - 1].isIntersecting;
    tell();
  });
  observer.observe(element);
  document.addEventListener("visibilitychange", tell);
  return () => {
    observer.disconnect();
    document.removeEventListener("visibilitychange", tell);
    if (told) changed(false);
  };
}

// A canvas that is sharp on its screen and as wide as its place; `draw(context, width, height)`.
export function surface(height, draw) {
  const canvas = h("canvas", { class: "dk-canvas", style: `height:${height}px` });
  let asked = 0;
  const paint = () => {
    asked = 0;
    const width = canvas.clientWidth;
    if (!width || !canvas.isConnected) return;
    const ratio = window.devicePixelRatio || 1;
    const size = [Math.round(width * ratio), Math.round(canvas.clientHeight * ratio)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, canvas.clientHeight);
    draw(context, width, canvas.clientHeight);
  };
  const again = () => {
    if (!asked) asked = requestAnimationFrame(paint);
  };
  const observer = new ResizeObserver(again);
  observer.observe(canvas);
  const end = () => {
    observer.disconnect();
    cancelAnimationFrame(asked);
  };
  return { canvas, again, end };
}

// Numbers that came as bytes; a copy, since they may lie anywhere in a message.
export function numbers(view, Type) {
  if (!view) return new Type(0);
  const from = view.byteOffset || 0;
  return new Type((view.buffer || view).slice(from, from + view.byteLength));
}
