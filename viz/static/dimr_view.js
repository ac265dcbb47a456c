// A layer-mask search to look at: the plot of all masks, the masks themselves, what was judged, the r curve.
// One mask is shown at a time: the one under the pointer or the focus, else the pinned one, else the best.

import { clamp, fill, h, number, percent, setText } from "./dom.js";
import { CONFIG, loadPlotly } from "./charts.js";
import { colours } from "./figures.js";
import { Pace } from "./pace.js";
import { costFigure, curveFigure, curveLegend, legendOf } from "./dimr_figure.js";
import { maskWords, METHODS } from "./dimr_data.js";
import { MaskRows } from "./dimr_masks.js";
import { HeldOut } from "./dimr_table.js";

const LIVE_MS = 700;
const STEPS = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10};

export class DimrView {
  // `told` is called whenever another mask is shown.
  constructor(root, url, told = () => {}) {
    this.root = root;
    this.url = url;
    this.told = told;
    this.search = null;
    this.hovered = null; // {mask, what}
    this.pinned = null;
    this.plotly = null;
    this.drawn = {cost: null, curve: null}; // figures as they stand
    this.pace = new Pace(LIVE_MS, () => this.drawPlots());
    this.note = h("p.empty", {}, "");
    this.legend = h("p.dimr-legend", {"aria-hidden": "true"});
    this.cost = h("div.chart.dimr-cost", {role: "slider", tabindex: "0", "aria-label": "Scored masks by step", "aria-valuemin": "0", onkeydown: (event) => this.key(event)});
    this.curve = h("div.chart.dimr-curve", {role: "img", "aria-label": "Predicted speed, and share of cycles that call the full verifier, over the skip ratio"});
    this.curveLegend = h("p.dimr-legend", {"aria-hidden": "true"});
    this.sentence = h("p.sentence", {});
    this.curveBox = h("section.dimr-curve-box", {"aria-label": "Skip ratio", hidden: true}, h("h4", {}, "Predicted speed over speculative decoding and calls of q, by skip ratio"), this.curveLegend, this.curve, this.sentence);
    this.masks = new MaskRows((index, pinned) => this.chooseRow(index, pinned));
    this.heldOut = new HeldOut();
    const plots = h("section.dimr-plots", {"aria-label": "Scored masks"}, h("h4", {}, "Cost of every mask, nats a position"), this.legend, this.note, this.cost, h("p.muted.small-print", {}, "Click a point, or use the arrow keys on the plot, to keep a mask shown; Escape goes back to the best."));
    this.node = h("div.dimr-view", {}, plots, this.masks.node, this.curveBox, this.heldOut.node);
    this.node.addEventListener("keydown", (event) => event.key === "Escape" && this.pin(null));
    new IntersectionObserver((entries) => this.seenIf(entries), {rootMargin: "200px"}).observe(this.node);
    new ResizeObserver(() => this.plotly && this.pace.ask()).observe(this.node);
  }

  show(search) {
    this.search = search;
    this.hovered = this.pinned = null;
    this.draw();
  }

  // Everything anew, the plots at their own pace.
  draw() {
    this.drawMask();
    this.heldOut.draw(this.search);
    this.curveBox.hidden = !this.search.curve;
    if (this.search.curve) setText(this.sentence, String(this.search.curve.sentence ?? "").slice(0, 400));
    if (!this.plotly) this.tellEmpty();
    else if (this.search.live) this.pace.ask();
    else this.pace.now(); // nothing more will come
  }

  get best() {
    const {search} = this;
    if (search.found) return {mask: search.found.mask, what: `Best mask, ${number(search.found.cost, 4)} nats`};
    return search.best === null ? null : {mask: search.points[search.best].mask, what: this.named(search.best, "Best so far")};
  }

  // The mask that is shown, or null.
  get shown() {
    return this.hovered || this.pinned || this.best;
  }

  named(index, first = "Mask") {
    const point = this.search.points[index];
    return `${first}: step ${point.step}, ${METHODS[point.method] || "scored"}, ${number(point.cost, 4)} nats`;
  }

  drawMask() {
    const {shown, search} = this;
    const index = shown ? search.indexOf(shown.mask) : null;
    this.masks.draw(search, {mask: shown?.mask ?? "", what: shown?.what ?? "", shown: index, pinned: this.pinned?.mask === shown?.mask});
    const last = search.points.length - 1;
    this.cost.setAttribute("aria-valuemax", String(Math.max(0, last)));
    this.cost.setAttribute("aria-valuenow", String(index ?? 0));
    this.cost.setAttribute("aria-valuetext", index === null ? "no mask" : `${this.named(index)}; ${maskWords(shown.mask, search.halves)}`);
    this.told(shown?.mask ?? null);
    this.moveRings(index);
  }

  hover(target) {
    if (this.hovered?.mask === target?.mask) return;
    this.hovered = target;
    this.drawMask();
  }

  pin(target) {
    this.pinned = target;
    this.hovered = null;
    this.drawMask();
  }

  chooseRow(index, pinned) {
    const target = index === null ? null : {mask: this.search.points[index].mask, what: this.named(index)};
    if (pinned) this.pin(this.pinned?.mask === target.mask ? null : target);
    else this.hover(target);
  }

  key(event) {
    const {search} = this;
    const last = search.points.length - 1;
    if (last < 0) return;
    const here = this.shown ? search.indexOf(this.shown.mask) ?? 0 : 0;
    const next = event.key === "Home" ? 0 : event.key === "End" ? last : event.key in STEPS ? clamp(here + STEPS[event.key], 0, last) : null;
    if (next === null) return;
    event.preventDefault();
    this.pin({mask: search.points[next].mask, what: this.named(next)});
  }

  // -- plots

  seenIf(entries) {
    if (this.loading || !entries.some((entry) => entry.isIntersecting)) return;
    this.loading = true;
    if (!this.url) {
      this.missing = "The plots need the chart library, which this page does not serve; the masks below are complete.";
      this.tellEmpty();
      return;
    }
    loadPlotly(this.url).then((plotly) => {
      this.plotly = plotly;
      this.pace.now();
    }, (error) => {
      this.loading = false;
      this.missing = error.message;
      this.tellEmpty();
    });
  }

  tellEmpty() {
    const some = Boolean(this.search?.points.length);
    setText(this.note, this.missing || (some ? "" : "The plot begins with the first mask of the wanted size."));
    this.cost.hidden = !some || !this.plotly;
  }

  drawPlots() {
    const {search} = this;
    if (!search || !this.node.isConnected) return;
    this.tellEmpty();
    const look = colours({root: this.root, options: {}});
    const {shown} = this;
    const index = shown ? search.indexOf(shown.mask) : null;
    const legend = ([glyph, name]) => h("span", {}, h("b", {}, glyph), ` ${name}`);
    fill(this.legend, legendOf(search).map(legend));
    if (search.curve) fill(this.curveLegend, curveLegend(search.curve).map(legend));
    if (search.points.length) this.drawOne("cost", costFigure(search, look, index), (point) => this.pointed(point));
    if (search.curve) this.drawOne("curve", curveFigure(search.curve, look, shown?.mask), (point) => this.pointedCurve(point));
  }

  drawOne(name, figure, targetOf) {
    const node = this[name];
    if (!node.clientWidth) return;
    this.drawn[name] = figure;
    this.plotly.react(node, figure.data, figure.layout, CONFIG);
    if (node.viasdWired) return;
    node.viasdWired = true;
    node.on("plotly_hover", (event) => this.hover(targetOf(event.points[0])));
    node.on("plotly_unhover", () => this.hover(null));
    node.on("plotly_click", (event) => this.pin(targetOf(event.points[0])));
  }

  pointed(point) {
    const index = point.customdata;
    return this.search.points[index] ? {mask: this.search.points[index].mask, what: this.named(index)} : null;
  }

  pointedCurve(point) {
    const found = this.search.curve?.points[point.customdata];
    return found ? {mask: found.mask, what: `Skip ratio ${percent(found.skip_ratio)}: ${number(found.predicted.speed, 3)} times, ${number(found.cost, 4)} nats`} : null;
  }

  // The ring is the last trace of each plot.
  moveRings(index) {
    if (!this.plotly) return;
    const point = index === null ? null : this.search.points[index];
    const onCurve = this.search.curve?.points.find((one) => one.mask === this.shown?.mask);
    this.moveRing("cost", point ? [point.step, point.cost] : [null, null]);
    this.moveRing("curve", onCurve ? [onCurve.skip_ratio, onCurve.predicted.speed] : [null, null]);
  }

  moveRing(name, [x, y]) {
    const figure = this.drawn[name];
    if (!figure || !this[name].clientWidth) return;
    const ring = figure.data.at(-1);
    if (ring.x[0] === x && ring.y[0] === y) return;
    ring.x = [x];
    ring.y = [y];
    this.plotly.restyle(this[name], {x: [[x]], y: [[y]]}, [figure.data.length - 1]);
  }

  themed() {
    if (this.plotly) this.pace.ask();
  }
}
