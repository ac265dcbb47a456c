// Pointer and keyboard over the nodes of a tree: one tab stop, arrows along edges and lines; n and p, anywhere
// in the viewer, go to the next and the previous repair.

const TYPING = "input, select, textarea, [contenteditable]";

export class TreeKeys {
  constructor(panel) {
    this.panel = panel;
    this.stop = null; // index of the place that is the tab stop
    const {scroll, app} = panel;
    scroll.addEventListener("pointerover", (event) => panel.describe(this.indexOf(event.target) ?? panel.current));
    scroll.addEventListener("pointerleave", () => panel.describe(panel.current));
    scroll.addEventListener("focusin", (event) => panel.describe(this.indexOf(event.target) ?? panel.current));
    scroll.addEventListener("focusout", () => panel.describe(panel.current));
    scroll.addEventListener("click", (event) => this.click(event));
    scroll.addEventListener("keydown", (event) => this.key(event));
    app.root.addEventListener("keydown", (event) => this.jump(event));
  }

  reset() {
    const {places} = this.panel.layout;
    const best = places.findIndex((place) => place.row.on_best_path);
    this.makeStop(places.length ? Math.max(0, best) : null);
  }

  makeStop(index) {
    const {marks} = this.panel;
    if (this.stop !== null) marks[this.stop]?.setAttribute("tabindex", -1);
    this.stop = index;
    if (index !== null) marks[index].setAttribute("tabindex", 0);
  }

  indexOf(target) {
    const mark = target instanceof Element ? target.closest(".tree-node") : null;
    const index = mark ? this.panel.marks.indexOf(mark) : -1;
    return index >= 0 ? index : null;
  }

  click(event) {
    const index = this.indexOf(event.target);
    if (index === null) return;
    this.go(index);
    this.panel.pick(index);
  }

  key(event) {
    const current = this.indexOf(event.target);
    if (current === null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.panel.pick(current);
      return;
    }
    const next = this.target(event.key, current);
    if (next === undefined) return;
    event.preventDefault();
    if (next !== null) this.go(next);
  }

  target(key, current) {
    const {places} = this.panel.layout;
    if (key === "ArrowLeft") return places[current].parent >= 0 ? places[current].parent : null;
    if (key === "ArrowRight") return childOf(places, current);
    if (key === "ArrowDown") return besides(places, current, 1);
    if (key === "ArrowUp") return besides(places, current, -1);
    if (key === "Home") return 0;
    if (key === "End") return lastBest(places);
    return undefined;
  }

  go(index) {
    const {panel} = this;
    this.makeStop(index);
    panel.marks[index].focus({preventScroll: true});
    panel.reveal(index);
    panel.describe(index);
  }

  jump(event) {
    const step = {n: 1, p: -1}[event.key];
    const {panel} = this;
    if (!step || panel.node.hidden || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof Element && event.target.closest(TYPING)) return;
    event.preventDefault();
    panel.jump(step);
  }
}

// The child on the same line, else the first one.
function childOf(places, current) {
  const children = places.flatMap((place, index) => (place.parent === current ? [index] : []));
  return children.find((index) => places[index].line === places[current].line) ?? children[0] ?? null;
}

// The node nearest in depth on the closest line below (1) or above (-1) that has one.
function besides(places, current, step) {
  const {line, depth} = places[current];
  const further = places.map((place) => (place.line - line) * step).filter((distance) => distance > 0);
  if (!further.length) return null;
  const wanted = line + step * Math.min(...further);
  const away = (index) => Math.abs(places[index].depth - depth);
  return places.flatMap((place, index) => (place.line === wanted ? [index] : [])).reduce((best, index) => (best === null || away(index) < away(best) ? index : best), null);
}

function lastBest(places) {
  return places.reduce((found, place, index) => (place.row.on_best_path ? index : found), 0);
}
