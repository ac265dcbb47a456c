// Save what is shown, open what was saved. Both stay in the browser.

import { h, icon, setText } from "./dom.js";
import { bundleFiles, bundleZip, fileStem } from "./bundle.js";
import { download } from "./download.js";
import { importFiles } from "./import.js";

export class FilesMenu {
  constructor(app) {
    this.app = app;
    const names = [...SCHEMA.tables.map((table) => table.file), SCHEMA.runFile];
    const item = (words, action) => h("button", {type: "button", role: "menuitem", onclick: action}, words);
    this.summary = h("summary.button", {"aria-label": "Save the trace"}, "Save ", icon("down"));
    this.menu = h("details.menu", {}, this.summary, h("div.menu-list", {role: "menu"},
      item("Whole trace (.zip)", () => this.save(null)), names.map((name) => item(name, () => this.save(name)))));
    this.input = h("input", {type: "file", multiple: true, accept: ".zip,.csv,.json", hidden: true, "aria-label": "Trace file", onchange: () => this.chosen(this.input.files)});
    this.open = h("button.button", {type: "button", title: "A trace saved here or by the command line: the zip, or its files together. It is read in this browser and not sent anywhere.", onclick: () => this.input.click()}, "Open trace");
    this.back = h("button.button", {type: "button", hidden: true, onclick: () => this.showLive()});
    this.node = h("div.files", {}, this.back, this.open, this.input, this.menu);
    this.listen();
  }

  listen() {
    const {root} = this.app;
    document.addEventListener("click", (event) => {
      if (!this.menu.contains(event.target)) this.menu.open = false;
    });
    this.menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.menu.open = false;
      this.summary.focus();
    });
    root.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      root.classList.add("dropping");
    });
    root.addEventListener("dragleave", (event) => {
      if (!root.contains(event.relatedTarget)) root.classList.remove("dropping");
    });
    root.addEventListener("drop", (event) => {
      root.classList.remove("dropping");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.chosen(event.dataTransfer.files);
    });
  }

  sync(changes) {
    if (!changes.has("data") && !changes.has("run") && !changes.has("status")) return;
    const {app} = this;
    const nothing = !app.store.cycles.length;
    this.summary.classList.toggle("off", nothing);
    this.summary.setAttribute("aria-disabled", String(nothing));
    const live = app.stores.get(app.liveRun);
    this.back.hidden = !live || live === app.store;
    if (!this.back.hidden) setText(this.back, live.live ? "Back to the live run" : "Back to the last run");
  }

  showLive() {
    const live = this.app.stores.get(this.app.liveRun);
    if (live) this.app.show(live);
  }

  save(name) {
    this.menu.open = false;
    const {store} = this.app;
    if (!store.cycles.length) {
      this.app.fail("There is nothing to save yet: the run has no cycle.");
      return;
    }
    const stem = fileStem(store);
    if (name === null) download(`${stem}.zip`, [bundleZip(store)], "application/zip");
    else download(`${stem}-${name}`, [bundleFiles(store)[name]], name.endsWith(".csv") ? "text/csv" : "application/json");
  }

  async chosen(files) {
    try {
      const store = await importFiles(files);
      this.app.show(store);
      this.app.env.trigger("replay_loaded", {run_id: String(store.run.run_id || ""), tokens: store.out.size});
    } catch (error) {
      this.app.fail(`The trace was not opened. ${error.message}`);
    }
    this.input.value = "";
  }
}
