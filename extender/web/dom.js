// Elements, lists whose parts stay the same elements, and how times and amounts are written. What
// comes from outside only ever becomes text.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) node.setAttribute(key, value);
  node.append(...children.filter(child => child !== null && child !== undefined && child !== ""));
  return node;
}
export const element = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
export const shape = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

// Touches nothing where nothing changed, so that a selection stays.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

const lists = new WeakMap();

// Makes `parent` have one child for each item, in their order. `make(item)` gives {node, update};
// an item of the same key keeps its element. The one that has the focus is never moved: the others
// are put around it.
export function keyed(parent, items, keyOf, make) {
  const before = lists.get(parent) ?? new Map();
  const parts = new Map();
  for (const item of items) {
    const key = keyOf(item);
    const part = before.get(key) ?? make(item);
    part.update?.(item);
    parts.set(key, part);
  }
  for (const [key, part] of before) if (!parts.has(key)) part.node.remove();
  lists.set(parent, parts);
  const nodes = [...parts.values()].map(part => part.node);
  const focused = nodes.findIndex(node => node.parentNode === parent && node.contains(document.activeElement));
  const anchor = focused < 0 ? null : nodes[focused];
  let last = null;
  nodes.forEach((node, i) => {
    if (node !== anchor) {
      const next = last === null ? parent.firstChild : last.nextSibling;
      if (next !== node) {
        // Whatever stands between moves on by itself once its turn comes.
        if (i < focused && next === anchor) anchor.before(node);
        else parent.insertBefore(node, next);
      }
    } else {
      while ((last === null ? parent.firstChild : last.nextSibling) !== anchor) {
        anchor.after(last === null ? parent.firstChild : last.nextSibling);
      }
    }
    last = node;
  });
}

// A row of plain cells: {node, set(texts)}; a cell is a text or an element that stays.
export function row(cells) {
  return element("tr", {}, ...cells);
}

export function table(caption, titles, attributes) {
  const body = element("tbody");
  const node = element("table", attributes,
    element("caption", {class: "unseen"}, caption),
    element("thead", {}, element("tr", {}, ...titles.map(title => element("th", {scope: "col"}, title)))),
    body);
  // So that a wide one scrolls by itself, also by keyboard.
  const frame = element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption}, node);
  return {node: frame, body};
}

export function words(name) {
  return (name ?? "").toLowerCase().replaceAll("_", " ");
}

const TONES = {
  good: ["BOUND", "FINISHED", "READY", "BINDING", "USABLE", "MEMBER_BOUND", "RUNNING", "SUCCEEDED"],
  bad: ["INFEASIBLE", "BACKING_OFF", "REPAIRING", "FAILED", "GOING"],
};
export function tone(state) {
  return TONES.good.includes(state) ? "good" : TONES.bad.includes(state) ? "bad" : "wait";
}
// A state, never by colour alone.
export function pill() {
  const node = element("span");
  return {node, update(state) {
    setAttribute(node, "class", "pill " + tone(state));
    setText(node, words(state));
  }};
}

export const time = text => text ? Date.parse(text) : null;
export const clock = at => at === null ? "" : new Date(at).toLocaleTimeString([], {hour12: false});

export function duration(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 0.95) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${Math.round(seconds * 10) / 10} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const parts = (big, small, size) => small === 0 ? `${big} ${size[0]}` : `${big} ${size[0]} ${small} ${size[1]}`;
  if (whole < 3600) return parts(Math.floor(whole / 60), whole % 60, ["min", "s"]);
  if (whole < 86400) return parts(Math.floor(whole / 3600), Math.floor(whole % 3600 / 60), ["h", "min"]);
  return parts(Math.floor(whole / 86400), Math.floor(whole % 86400 / 3600), ["d", "h"]);
}
// For what grows by itself: no tenths that would change all the time.
export const age = milliseconds => milliseconds < 1000 ? "now" : duration(Math.floor(milliseconds / 1000) * 1000);

const round = value => Number(value.toPrecision(3)).toLocaleString("en", {maximumFractionDigits: 2});

// Of a resource, in its base unit: cpu in thousandths, memory in bytes.
export function amount(resource, value) {
  const number = Number(value ?? 0);
  if (resource === "cpu") return round(number / 1000);
  if (!/^(memory|ephemeral-storage|hugepages-)/.test(resource)) return number.toLocaleString("en");
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const power = number < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(number) / 10));
  return `${round(number / 2 ** (10 * power))} ${units[power]}`;
}
export const isDevice = resource => resource.includes("/") && !resource.startsWith("hugepages-");

export const keyOf = gang => `${gang.namespace}/${gang.name}`;
export const hrefOf = (namespace, name) =>
  `#/gangs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
