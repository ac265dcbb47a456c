// The two figures, drawn with the plotly.js that the page serves; fetched only when they come into view.

import { fill, h } from "./dom.js";
import { Pace } from "./pace.js";
import { colours, runFigures, vertical } from "./figures.js";

const LIVE_MS = 1500;
export const CONFIG = {displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset"};
let loading = null;

export function loadPlotly(url) {
  loading ??= new Promise((resolve, reject) => {
    if (window.Plotly) {
      resolve(window.Plotly);
      return;
    }
    const script = document.createElement("script");
    script.src = url;
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => {
      loading = null;
      script.remove();
      reject(new Error("The chart library could not be loaded from this page's server; reload to try again."));
    });
    document.head.append(script);
  });
  return loading;
}

export class Charts {
  constructor(app, player, url) {
    this.app = app;
    this.player = player;
    this.url = url;
    this.plotly = null;
    this.seen = false;
    this.pace = new Pace(LIVE_MS, () => this.draw());
    this.base = {};
    this.plots = {tokens: h("div.chart", {role: "img", "aria-label": "Tokens a cycle, stacked by tier"}), share: h("div.chart", {role: "img", "aria-label": "Share of each tier so far"})};
    this.note = h("p.empty", {}, "");
    this.node = h("section.charts", {"aria-label": "Charts"}, this.note, this.plots.tokens, this.plots.share);
    new IntersectionObserver((entries) => this.seenIf(entries), {rootMargin: "200px"}).observe(this.node);
    new ResizeObserver(() => this.resize()).observe(this.node);
  }

  seenIf(entries) {
    if (this.seen || !entries.some((entry) => entry.isIntersecting)) return;
    this.seen = true;
    if (!this.url) {
      fill(this.note, "Charts need the chart library, which this page does not serve; the numbers beside them are complete.");
      return;
    }
    fill(this.note, "Loading charts…");
    loadPlotly(this.url).then((plotly) => {
      this.plotly = plotly;
      this.pace.now();
    }, (error) => {
      this.seen = false;
      fill(this.note, error.message);
    });
  }

  sync(changes) {
    if (!this.plotly) return;
    if (["run", "theme", "options", "data"].some((change) => changes.has(change))) this.pace.ask();
    if (changes.has("head") || changes.has("cursor")) this.moveCursor();
  }

  draw() {
    const {app} = this;
    const figures = runFigures(app.store, colours(app), app.options.patterns);
    fill(this.note, figures ? "" : "The charts begin with the first cycle.");
    for (const [name, node] of Object.entries(this.plots)) {
      node.hidden = !figures;
      if (figures && node.clientWidth) this.drawOne(name, node, figures[name]);
    }
  }

  drawOne(name, node, figure) {
    this.base[name] = figure.layout.shapes;
    figure.layout.shapes = this.shapes(name);
    this.plotly.react(node, figure.data, figure.layout, CONFIG);
    if (node.viasdWired) return;
    node.viasdWired = true;
    node.on("plotly_click", (event) => this.clicked(event.points[0]));
  }

  clicked(point) {
    const {app} = this;
    const index = app.store.cycles.findIndex((row) => row.cycle === point.x);
    if (index < 0) return;
    this.player.pause();
    app.pinCycle(index);
  }

  shapes(name) {
    const {app} = this;
    const cycle = app.store.cycles[app.focusCycle];
    const marked = cycle && (app.pinned || app.head !== null);
    return [...this.base[name], ...(marked ? [vertical(cycle.cycle, colours(app).accent)] : [])];
  }

  moveCursor() {
    for (const [name, node] of Object.entries(this.plots)) {
      if (this.base[name] && !node.hidden && node.clientWidth) this.plotly.relayout(node, {shapes: this.shapes(name)});
    }
  }

  resize() {
    if (this.plotly && this.node.clientWidth) this.pace.ask();
  }
}
