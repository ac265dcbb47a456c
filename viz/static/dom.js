// Small helpers for building DOM without ever parsing markup, and for printing numbers.

const SVG = "http://www.w3.org/2000/svg";

// h("button.chip", {type: "button", onclick: f}, "text", node, null)
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(" ");
  applyProps(node, props);
  append(node, children);
  return node;
}

export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  append(node, children);
  return node;
}

function applyProps(node, props) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, item] of Object.entries(value)) node.style.setProperty(name, item);
    else node.setAttribute(key, value === true ? "" : value);
  }
}

function append(node, children) {
  for (const child of children.flat(2)) {
    if (child === null || child === undefined || child === false) continue;
    node.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 2.5h3v11H4zM9 2.5h3v11H9z",
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  last: "M11 3h2v10h-2zM3 3v10l7-5z",
  back: "M10.5 3v10L4 8z",
  next: "M5.5 3v10L12 8z",
  close: "M4 3l4 4 4-4 1 1-4 4 4 4-1 1-4-4-4 4-1-1 4-4-4-4z",
  down: "M3 5.5h10L8 11z",
};

export function icon(name) {
  const shape = svg("path", {d: ICONS[name]});
  return svg("svg", {viewBox: "0 0 16 16", width: 14, height: 14, fill: "currentColor", "aria-hidden": "true"}, shape);
}

export function setIcon(button, name) {
  if (button.dataset.icon === name) return;
  button.dataset.icon = name;
  fill(button, icon(name));
}

export function isNumber(value) {
  return typeof value === "number" && !Number.isNaN(value);
}

export function number(value, digits = 3) {
  if (!isNumber(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value).replace("-", "−");
  const size = Math.abs(value);
  const text = size >= 1e7 || size < 1e-4 ? value.toExponential(1) : value.toFixed(decimals(size, digits));
  return text.replace("-", "−");
}

function decimals(size, digits) {
  return Math.max(0, Math.min(digits, digits - 1 - Math.floor(Math.log10(size || 1))));
}

export function percent(share, digits = 0) {
  return isNumber(share) ? `${(100 * share).toFixed(digits)} %` : "–";
}

export function milliseconds(us) {
  return isNumber(us) ? `${number(us / 1000, 3)} ms` : "–";
}

export function probability(logp) {
  if (!isNumber(logp)) return "–";
  const p = Math.exp(logp);
  if (p > 0 && p < 0.0005) return "<.001";
  return p.toFixed(3).replace(/^0/, "");
}

// A ratio or threshold, 0 to 1, always with the same decimals.
export function ratio(value, digits = 3) {
  return isNumber(value) && Number.isFinite(value) ? value.toFixed(digits) : number(value);
}

export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}
