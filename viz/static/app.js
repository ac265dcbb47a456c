// What the viewer knows and who must hear of a change: runs, the shown one, the replay head, the cursor.

import { Store } from "./store.js";
import { clamp } from "./dom.js";

const KEPT_RUNS = 4;

export class App {
  constructor(env, root) {
    this.env = env;
    this.root = root;
    this.stores = new Map();
    this.store = new Store("");
    this.liveRun = null; // id of the newest run that came over the wire
    this.head = null; // index of the last cycle shown; null = everything there is
    this.row = null; // index of the token under the cursor
    this.pinned = false;
    this.sheet = true; // whether a pinned token may open its sheet on a phone
    this.options = {ghosts: false, patterns: false, follow: true, off: new Set()};
    this.dark = false;
    this.narrow = false;
    this.error = "";
    this.views = [];
    this.dirty = new Set();
    this.scheduled = false;
    this.stats = {messages: 0, duplicates: 0, gaps: 0, longest: 0, lastPaint: 0, latencies: [], waiting: []};
  }

  // Index of the cycle the view stands at, -1 when there is none.
  get headIndex() {
    const last = this.store.cycles.length - 1;
    return this.head === null ? last : Math.min(this.head, last);
  }

  // Number of that cycle; Infinity when nothing is held back.
  get until() {
    return this.head === null || !this.store.cycles.length ? Infinity : this.store.cycles[this.headIndex].cycle;
  }

  // Index of the cycle the detail panels speak of.
  get focusCycle() {
    return this.row !== null && this.pinned ? this.store.tokens[this.row].at : this.headIndex;
  }

  touch(...changes) {
    for (const change of changes) this.dirty.add(change);
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => this.flush());
  }

  flush() {
    const started = performance.now();
    this.scheduled = false;
    const changes = this.dirty;
    this.dirty = new Set();
    for (const view of this.views) view.sync(changes);
    this.stats.longest = Math.max(this.stats.longest, performance.now() - started);
    const waiting = this.stats.waiting.splice(0);
    setTimeout(() => this.painted(waiting), 0);
  }

  painted(waiting) {
    const now = performance.timeOrigin + performance.now();
    this.stats.lastPaint = now;
    for (const emitted of waiting) this.stats.latencies.push(now - emitted);
    this.stats.latencies.splice(0, this.stats.latencies.length - 5000);
  }

  storeFor(id) {
    if (!this.stores.has(id)) {
      this.stores.set(id, new Store(id));
      for (const [key, store] of this.stores) {
        if (this.stores.size > KEPT_RUNS && store !== this.store && key !== id) this.stores.delete(key);
      }
    }
    return this.stores.get(id);
  }

  show(store) {
    this.stores.set(store.id, store);
    this.store = store;
    this.head = null;
    this.row = null;
    this.pinned = false;
    this.error = "";
    this.touch("run", "data", "head", "cursor", "status", "options");
    this.tell("viasd:run", {run: store.id, live: store.live});
  }

  // Stand at a cycle index; null or the last index of an ended run means everything.
  setHead(index) {
    const last = this.store.cycles.length - 1;
    if (last < 0) return;
    const next = index === null || (index >= last && !this.store.live) ? null : clamp(index, 0, last);
    if (next === this.head) return;
    this.head = next;
    this.touch("head");
    this.tellCursor();
  }

  // A panel that says itself what it picked leaves the phone's sheet closed.
  select(row, pinned, {sheet = true} = {}) {
    this.row = row;
    this.pinned = pinned && row !== null;
    this.sheet = sheet;
    this.root.classList.toggle("no-sheet", !sheet);
    this.touch("cursor");
    this.tellCursor();
  }

  unpin() {
    this.pinned = false;
    this.touch("cursor");
  }

  pinCycle(index, options) {
    const span = this.store.spans[clamp(index, 0, this.store.spans.length - 1)];
    if (!span) return;
    const rows = this.store.tokens.slice(...span);
    const offset = Math.max(0, rows.findIndex((row) => row.emitted && row.shown));
    if (rows.length) this.select(span[0] + offset, true, options);
  }

  setOption(name, value) {
    this.options[name] = value;
    this.touch("options");
  }

  fail(sentence) {
    this.error = sentence;
    this.touch("status");
  }

  tellCursor() {
    const row = this.row === null ? null : this.store.tokens[this.row];
    const cycle = this.store.cycles[this.focusCycle];
    this.tell("viasd:cursor", {cycle: cycle ? cycle.cycle : null, pos: row ? row.place : null});
  }

  tell(name, detail) {
    this.root.dispatchEvent(new CustomEvent(name, {detail, bubbles: true}));
  }
}
