// The search that a run's trace holds (dimr.csv), below the run; there is none without one.

import { h, setText } from "./dom.js";
import { fromRows } from "./dimr_data.js";
import { DimrView } from "./dimr_view.js";

export class DimrSection {
  constructor(app, url) {
    this.app = app;
    this.problem = h("p.dimr-problem", {role: "alert"});
    this.view = new DimrView(app.root, url);
    this.node = h("section.dimr-section", {"aria-label": "Layer mask search", hidden: true}, h("h3", {}, "How the layer mask was found"), this.problem, this.view.node);
    this.rows = 0; // of the store that is shown, already drawn
  }

  sync(changes) {
    if (changes.has("theme")) this.view.themed();
    if (!changes.has("run") && !changes.has("data")) return;
    const {dimr} = this.app.store;
    if (!changes.has("run") && dimr.length === this.rows) return;
    this.rows = dimr.length;
    this.node.hidden = !dimr.length;
    if (dimr.length) this.show(dimr);
  }

  show(rows) {
    let problem = "";
    try {
      this.view.show(fromRows(rows, this.app.store.run?.n_layers));
    } catch (error) {
      problem = error.message;
    }
    setText(this.problem, problem);
    this.problem.hidden = !problem;
    this.view.node.hidden = Boolean(problem);
  }
}
