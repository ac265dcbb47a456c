// The layer-mask tab's own part: buttons, how far the search is, and the search to look at.

import { fill, h, number, setText } from "./dom.js";
import { MaskSearch } from "./dimr_data.js";
import { csvOf, maskFileOf, openSearch } from "./dimr_files.js";
import { DimrView } from "./dimr_view.js";
import { SearchWire } from "./dimr_wire.js";
import { download } from "./download.js";
import { followTheme, followWidth } from "./surroundings.js";
import { oneLine } from "./shown_text.js";

const SPOKEN_MS = 5000;
const STATES = {
  idle: "Ready", queued: "Queued", loading: "Loading", running: "Searching", paused: "Waiting", stopping: "Stopping",
  stopped: "Stopped", done: "Done", error: "Failed",
};

export function mount(env) {
  const panel = new Panel(env, env.element.querySelector(".viasd"));
  followTheme(panel);
  followWidth(panel);
  if (env.watch) env.watch("value", () => panel.followValue(env.props.value));
  panel.draw();
  panel.wire.restore();
  panel.followValue(env.props.value);
  window.__viasd_dimr = panel.report();
}

class Panel {
  constructor(env, root) {
    this.env = env;
    this.root = root;
    this.search = new MaskSearch();
    this.file = ""; // name of the file that is shown, if it is one
    this.said = "";
    this.saidAt = -Infinity;
    this.view = new DimrView(root, typeof env.props.plotly_url === "string" ? env.props.plotly_url : "", () => this.drawUse());
    this.wire = new SearchWire(root, env.server, {
      reset: () => this.reset(),
      fold: (message) => this.search.fold(message),
      changed: () => this.changed(),
      lost: (why) => this.lost(why),
    });
    this.wire.live = () => this.search.live;
    this.build();
    this.view.show(this.search);
  }

  build() {
    const button = (words, action, more = {}) => h("button.button", {type: "button", onclick: action, ...more}, words);
    const search = () => ({search: this.wire.run || ""});
    this.start = button("Search", () => this.act(() => this.env.trigger("dimr_start", search())), {class: "button primary"});
    this.stop = button("Stop", () => this.env.trigger("dimr_stop", search()), {title: "The best mask so far is kept."});
    this.resume = button("Resume", () => this.act(() => this.env.trigger("dimr_resume", {...search(), judge: false})), {title: "Goes on from the log, with the form's steps and patience."});
    this.judge = button("Judge", () => this.act(() => this.env.trigger("dimr_resume", {...search(), judge: true})), {title: "Scores the best mask on the held-out prompts; with the box ticked, other skip ratios too."});
    this.use = button("Use this mask", () => this.env.trigger("dimr_use", {...search(), mask: this.view.shown?.mask ?? ""}), {title: "The running generation takes the shown mask from its next cycle, and so do this tab's next runs."});
    this.saveMask = button("Save mask", () => download(`viasd-mask-r${this.sizeName()}.json`, [maskFileOf(this.search)], "application/json"), {title: "The mask file, as a download."});
    this.refused = typeof this.env.props.keep_refused === "string" ? this.env.props.keep_refused : "";
    this.keep = button("Keep for all runs", () => this.act(() => this.env.trigger("dimr_keep", search())), {title: this.refused || "Puts the found mask into the user's mask folder, where every run looks.", "aria-description": this.refused || null});
    this.saveRows = button("Save dimr.csv", () => download("dimr.csv", [csvOf(this.search)], "text/csv"));
    this.input = h("input", {type: "file", accept: ".csv,.json,.zip", hidden: true, "aria-label": "Search file", onchange: () => this.opened(this.input.files)});
    const open = button("Open", () => this.input.click(), {title: "dimr.csv, a trace that holds it, or a mask file. It is read in this browser and not sent anywhere.", "aria-label": "Open a saved search"});
    this.pill = h("span.pill", {});
    this.words = h("span.status-words", {});
    this.bar = h("progress.dimr-progress", {"aria-label": "Masks scored", hidden: true});
    this.left = h("span.muted.num", {});
    this.about = h("p.run-words", {});
    this.error = h("p.error", {role: "alert", hidden: true});
    this.spoken = h("p.sr", {role: "status", "aria-live": "polite"});
    fill(this.root,
      h("div.dimr-actions", {}, this.start, this.stop, this.resume, this.judge, h("span.gap", {}), this.use, this.keep, this.saveMask, this.saveRows, open, this.input),
      h("div.head", {}, h("div.status", {}, this.pill, this.words, this.bar, this.left, this.spoken)), this.about, this.error, this.view.node);
  }

  // A click that waits for the server's answer: not twice at once.
  act(action) {
    this.fail("");
    this.waiting = true;
    this.drawButtons();
    action();
    setTimeout(() => {
      this.waiting = false;
      this.drawButtons();
    }, 1500);
  }

  // A search that failed before its first mask gives way to the one before it: a slip in the form must not take
  // a finished search off the screen.
  changed() {
    const {status, points, found} = this.search;
    const {state, text} = status;
    if (state === "error" && !points.length && !found && this.wire.back()) this.fail(text);
    else this.draw();
  }

  // The server no longer has the search: what is shown of it stays, and another can be started.
  lost(why) {
    if (why) this.fail(why);
    const {live, points} = this.search;
    if (live) this.search.status = {state: points.length ? "stopped" : "idle", text: ""};
    this.draw();
  }

  followValue(value) {
    if (!value || typeof value !== "object") return;
    this.file = "";
    this.wire.follow(value);
  }

  touch() {
    this.view?.themed();
  }

  reset() {
    this.search = new MaskSearch();
    this.search.status = {state: "loading", text: ""};
    this.view.show(this.search);
    this.draw();
  }

  async opened(files) {
    try {
      const [file] = files;
      const search = await openSearch(files);
      this.wire.leave(); // a search that runs goes on until nobody has looked at it for a while
      this.search = search;
      this.file = file.name;
      this.fail("");
      this.view.show(search);
      this.draw();
    } catch (error) {
      this.fail(`The search was not opened. ${error.message}`);
    }
    this.input.value = "";
  }

  sizeName() {
    const {facts: {skipped}, units, halves} = this.search;
    const share = String(Math.round((100 * (skipped ?? 0)) / (units || 1))).padStart(2, "0");
    return halves ? `${share}-sublayer` : share;
  }

  fail(sentence) {
    setText(this.error, sentence);
    this.error.hidden = !sentence;
  }

  draw() {
    const {search} = this;
    const {state, text} = search.status;
    this.pill.className = `pill ${this.file ? "idle" : state}`;
    setText(this.pill, this.file ? "File" : STATES[state] || STATES.idle);
    setText(this.words, this.file ? `${oneLine(this.file, 40)}${text ? ` · ${oneLine(text, 200)}` : ""}` : text || (state === "idle" ? "Choose the settings above, then search." : ""));
    this.drawProgress();
    this.drawButtons();
    this.announce(`${this.pill.textContent}. ${this.words.textContent}`);
    this.view.draw();
  }

  drawProgress() {
    const {facts, all, live, points, others} = this.search;
    const known = live && typeof facts.planned === "number";
    this.bar.hidden = !known;
    if (known) {
      this.bar.max = facts.planned;
      this.bar.value = Math.min(all.length, facts.planned);
    }
    const seconds = this.search.secondsLeft();
    const scored = all.length ? `${all.length}${known ? ` of ${facts.planned}` : ""} mask${all.length === 1 && !known ? "" : "s"}` : "";
    const ofSize = !live && others.length ? `${points.length} of the wanted size` : "";
    setText(this.left, [scored, ofSize, seconds ? `at most ${timeWords(seconds)} left` : ""].filter(Boolean).join(" · "));
    const parts = [facts.preset, facts.search, facts.layers && `${facts.skipped} of ${this.search.units} ${this.search.halves ? "halves of layers" : "layers"} skipped`, facts.window && `windows of ${facts.window} rows`, facts.seed !== undefined && `seed ${facts.seed}`];
    setText(this.about, parts.filter(Boolean).map((part) => oneLine(String(part), 60)).join(" · "));
  }

  drawButtons() {
    const {search} = this;
    const ours = Boolean(this.wire.run) && !this.file;
    const ended = ours && !search.live && search.status.state !== "idle";
    const off = (button, value) => {
      button.disabled = Boolean(value);
    };
    off(this.start, this.waiting || (ours && search.live));
    off(this.stop, !(ours && search.live) || search.status.state === "stopping");
    off(this.resume, this.waiting || !ended);
    off(this.judge, this.waiting || !ended || !search.points.length);
    off(this.keep, this.refused || this.waiting || !ended || !search.found);
    off(this.saveMask, !search.found);
    off(this.saveRows, !search.points.length);
    this.drawUse();
  }

  drawUse() {
    if (this.use) this.use.disabled = !this.view.shown;
  }

  // At most one message in five seconds; the last one always gets through.
  announce(sentence) {
    if (sentence === this.said) return;
    this.said = sentence;
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.saidAt = performance.now();
      setText(this.spoken, this.said);
    }, Math.max(0, SPOKEN_MS - (performance.now() - this.saidAt)));
  }

  // A window onto the panel's state, for tests and for the curious.
  report() {
    const getters = {
      run: () => this.wire.run,
      state: () => this.search.status.state,
      points: () => this.search.points.length,
      masks: () => this.search.all.length,
      best: () => this.view.best?.mask ?? null,
      shown: () => this.view.shown?.mask ?? null,
      pinned: () => this.view.pinned?.mask ?? null,
      file: () => this.file,
      ring: () => this.view.drawn.cost?.data.at(-1).x[0] ?? null,
      error: () => this.error.textContent,
      judged: () => Boolean(this.search.found?.held_out),
    };
    const shown = {ready: true};
    for (const [name, get] of Object.entries(getters)) Object.defineProperty(shown, name, {get, enumerable: true});
    return shown;
  }
}

function timeWords(seconds) {
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  const minutes = Math.ceil(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${number(minutes / 60, 2)} h`;
}
