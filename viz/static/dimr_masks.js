// Masks as rows of L cells: the shown one, the best ones, and how often each layer is kept among them.

import { fill, h, number, setText } from "./dom.js";
import { maskWords, METHODS } from "./dimr_data.js";

const LISTED = 8;

function cells(mask) {
  return [...mask].map((bit) => h(bit === "1" ? "i.layer.kept" : "i.layer", {}));
}

function row(layers) {
  return h("span.layers", {style: {"--layers": String(layers || 1)}});
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
    setText(this.words, `It ${maskWords(mask)}.`);
    this.strip.setAttribute("aria-label", `Layer mask: ${maskWords(mask)}`);
    if (this.strip.dataset.mask !== mask) {
      this.strip.dataset.mask = mask;
      const line = row(mask.length);
      line.append(...cells(mask));
      fill(this.strip, line, ruler(mask.length));
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
    const line = row(point.mask.length);
    line.append(...cells(point.mask));
    const words = `step ${point.step}, ${METHODS[point.method] || "scored"}, ${number(point.cost, 4)}`;
    const button = h("button.mask-row", {
      type: "button", "data-point": String(index), "aria-pressed": "false", "aria-label": `${words} nats: ${maskWords(point.mask)}`,
      onclick: () => this.choose(index, true), onpointerenter: () => this.choose(index, false), onpointerleave: () => this.choose(null, false),
      onfocus: () => this.choose(index, false), onblur: () => this.choose(null, false),
    }, h("span.mask-name", {}, words), line);
    return h("li", {}, button);
  }

  drawHeat() {
    const {counts, of} = this.search.kept();
    this.node.querySelectorAll("h4")[1].hidden = this.heat.hidden = !of;
    const line = row(counts.length);
    line.append(...counts.map((count, layer) => h("i.share", {style: {"--share": String(of ? count / of : 0)}, "data-layer": String(layer)})));
    fill(this.heat, line);
    const seldom = counts.flatMap((count, layer) => (count < of ? [`${layer} in ${count}`] : []));
    this.heat.setAttribute("aria-label", `How many of the ${of} best masks keep a layer: ${seldom.length ? seldom.join(", ") : ""}${seldom.length < counts.length ? "; the others in all" : ""}`);
    this.describeHeat(null);
  }

  overHeat(event) {
    const cell = event.target.closest("[data-layer]");
    if (cell) this.describeHeat(Number(cell.dataset.layer));
  }

  describeHeat(layer) {
    const {counts, of} = this.search.kept();
    if (layer === null) {
      setText(this.heatNote, of ? `Bars: in how many of the ${of} cheapest masks a layer is kept.` : "");
      return;
    }
    const alone = this.search.alone().get(layer);
    const price = alone === undefined ? "" : `; its loss alone costs ${number(alone, 4)} nats`;
    setText(this.heatNote, `Layer ${layer}: kept in ${counts[layer]} of the ${of} cheapest masks${price}.`);
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
