// Masks as rows of L cells: the shown one, the best ones, and how often each layer is kept among them. A mask of
// halves has two rows, attention above MLP.

import { fill, h, number, setText } from "./dom.js";
import { maskWords, METHODS, unitWords } from "./dimr_data.js";

const LISTED = 8;

// A row of cells for the layers, or one for their attention and one for their MLP; `cell(unit)` makes one. With
// `named` the halves are written beside their rows, and `below` stands under the cells.
function lanes(search, cell, {named = false, below = null} = {}) {
  const {units, halves} = search;
  const every = Array.from({length: units}, (_, unit) => unit);
  const parts = halves ? [["attention", every.filter((unit) => unit % 2 === 0)], ["MLP", every.filter((unit) => unit % 2 === 1)]] : [["", every]];
  const name = (words) => halves && named && h("b.lane-name", {}, words);
  const lines = parts.map(([words, of]) => [name(words), row(of.length, of.map(cell))]);
  const tag = ["span.lanes", halves && "halves", halves && named && "named"].filter(Boolean).join(".");
  return h(tag, {}, ...lines, below && [name(""), below]);
}

function maskLanes(search, mask, more) {
  return lanes(search, (unit) => h(mask[unit] === "1" ? "i.layer.kept" : "i.layer", {}), more);
}

function row(layers, cells = []) {
  return h("span.layers", {style: {"--layers": String(layers || 1)}}, cells);
}

export class MaskRows {
  // `choose(index, pinned)` is called for a point that the reader hovers, focuses or presses; null when it leaves.
  constructor(choose) {
    this.choose = choose;
    this.title = h("h4", {}, "");
    this.words = h("p.mask-words", {});
    this.strip = h("div.mask-strip", {role: "img", tabindex: "-1"});
    this.heat = h("div.mask-heat", {role: "img"});
    this.heatNote = h("p.muted.small-print", {});
    this.list = h("ol.mask-list", {"aria-label": "Best masks"});
    this.drawn = "";
    this.node = h("section.masks", {"aria-label": "Masks"}, this.title, this.strip, this.words,
      h("h4", {}, "Kept among the best"), this.heat, this.heatNote, this.list);
    this.heat.addEventListener("pointermove", (event) => this.overHeat(event));
    this.heat.addEventListener("pointerleave", () => this.describeHeat(null));
  }

  // `mask` is shown and described by `what`; `shown` is the index of its point, if it has one.
  draw(search, {mask, what, shown, pinned}) {
    this.search = search;
    this.node.hidden = !mask;
    if (!mask) return;
    setText(this.title, what);
    const {halves} = search;
    setText(this.words, `It ${maskWords(mask, halves)}.`);
    this.strip.setAttribute("aria-label", `Layer mask: ${maskWords(mask, halves)}`);
    if (this.strip.dataset.mask !== mask || this.stripFor !== search) {
      this.strip.dataset.mask = mask;
      this.stripFor = search;
      fill(this.strip, maskLanes(search, mask, {named: true, below: ruler(halves ? mask.length / 2 : mask.length)}));
    }
    this.drawBest(shown, pinned);
  }

  drawBest(shown, pinned) {
    const {search} = this;
    const best = search.ranked();
    const key = best.join();
    if (this.drawn !== key || this.drawnFor !== search) {
      this.drawn = key;
      this.drawnFor = search;
      this.drawHeat();
      this.refill(best.slice(0, LISTED));
    }
    for (const button of this.list.querySelectorAll("button")) {
      const here = Number(button.dataset.point) === shown;
      button.classList.toggle("now", here);
      button.setAttribute("aria-pressed", String(here && pinned));
    }
  }

  // New rows for the best masks; the focus stays on the mask it was on.
  refill(best) {
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.point : null;
    fill(this.list, best.map((index) => this.item(index)));
    if (focused !== null) this.list.querySelector(`button[data-point="${focused}"]`)?.focus({preventScroll: true});
  }

  item(index) {
    const point = this.search.points[index];
    const words = `step ${point.step}, ${METHODS[point.method] || "scored"}, ${number(point.cost, 4)}`;
    const button = h("button.mask-row", {
      type: "button", "data-point": String(index), "aria-pressed": "false", "aria-label": `${words} nats: ${maskWords(point.mask, this.search.halves)}`,
      onclick: () => this.choose(index, true), onpointerenter: () => this.choose(index, false), onpointerleave: () => this.choose(null, false),
      onfocus: () => this.choose(index, false), onblur: () => this.choose(null, false),
    }, h("span.mask-name", {}, words), maskLanes(this.search, point.mask));
    return h("li", {}, button);
  }

  drawHeat() {
    const {counts, of} = this.search.kept();
    this.node.querySelectorAll("h4")[1].hidden = this.heat.hidden = !of;
    const {halves} = this.search;
    fill(this.heat, lanes(this.search, (unit) => h("i.share", {style: {"--share": String(of ? counts[unit] / of : 0)}, "data-unit": String(unit)}), {named: true}));
    const seldom = counts.flatMap((count, unit) => (count < of ? [`${halves ? unitWords(unit, true) : unit} in ${count}`] : []));
    this.heat.setAttribute("aria-label", `How many of the ${of} best masks keep ${halves ? "a half of a layer" : "a layer"}: ${seldom.length ? seldom.join(", ") : ""}${seldom.length < counts.length ? "; the others in all" : ""}`);
    this.describeHeat(null);
  }

  overHeat(event) {
    const cell = event.target.closest("[data-unit]");
    if (cell) this.describeHeat(Number(cell.dataset.unit));
  }

  describeHeat(unit) {
    const {search} = this;
    const {counts, of} = search.kept();
    if (unit === null) {
      setText(this.heatNote, of ? `Bars: in how many of the ${of} cheapest masks a ${search.halves ? "half of a layer" : "layer"} is kept.` : "");
      return;
    }
    const alone = search.alone().get(unit);
    const price = alone === undefined ? "" : `; its loss alone costs ${number(alone, 4)} nats`;
    setText(this.heatNote, `${unitWords(unit, search.halves)}: kept in ${counts[unit]} of the ${of} cheapest masks${price}.`);
  }
}

// Layer numbers under a strip, as many as there is room for on a phone.
function ruler(layers) {
  const every = Math.max(1, Math.ceil(layers / 60)) * 5;
  const marks = row(layers);
  marks.classList.add("ruler");
  marks.setAttribute("aria-hidden", "true");
  for (let layer = 0; layer < layers; layer += every) marks.append(h("b", {style: {"grid-column": String(layer + 1)}}, String(layer)));
  return marks;
}
