// The line that says what is going on, and a quieter one for screen readers.

import { fill, h, setText } from "./dom.js";
import { FINISH, knobName, knobValue } from "./words.js";
import { oneLine } from "./shown_text.js";

const EVERY_MS = 5000;
const STATE_WORDS = {
  idle: "Ready", queued: "Queued", loading: "Loading", running: "Running", paused: "Paused",
  stopping: "Stopping", stopped: "Stopped", done: "Done", error: "Failed",
};

export class Status {
  constructor(app) {
    this.app = app;
    this.pill = h("span.pill", {});
    this.words = h("span.status-words", {});
    this.pending = h("span.pending-knobs", {});
    this.run = h("span.run-words", {});
    this.error = h("p.error", {role: "alert", hidden: true});
    this.spoken = h("p.sr", {role: "status", "aria-live": "polite"});
    this.node = h("div.status", {}, this.pill, this.words, this.pending, this.run, this.spoken);
    this.said = "";
    this.saidAt = -Infinity;
    this.timer = null;
  }

  sync(changes) {
    if (!["data", "status", "run", "pending"].some((change) => changes.has(change))) return;
    const {app} = this;
    const {store} = app;
    const state = stateOf(store);
    this.pill.className = `pill ${store.replay || (state === "done" && !store.run.method) ? "idle" : state}`;
    setText(this.pill, store.replay ? "Replay" : STATE_WORDS[state]);
    setText(this.words, wordsOf(store, state));
    fill(this.pending, pendingMarks(store));
    setText(this.run, runWords(store.run));
    this.error.hidden = !app.error;
    setText(this.error, app.error);
    this.announce(`${STATE_WORDS[state]}. ${wordsOf(store, state)}`);
  }

  // At most one message in five seconds; the last one always gets through.
  announce(sentence) {
    if (sentence === this.said) return;
    this.said = sentence;
    const wait = EVERY_MS - (performance.now() - this.saidAt);
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.saidAt = performance.now();
      setText(this.spoken, this.said);
    }, Math.max(0, wait));
  }
}

export function stateOf(store) {
  const {state} = store.status;
  return state === "idle" && store.live ? "running" : state;
}

function wordsOf(store, state) {
  const {text, position} = store.status;
  if (state === "queued" && Number.isInteger(position)) return `${text ? `${text} · ` : ""}${position === 0 ? "next in line" : `${position} before you`}`;
  if (state === "done") {
    const count = store.out.size;
    const how = FINISH[store.finish] || "";
    return store.ended ? [`${count} token${count === 1 ? "" : "s"}`, how].filter(Boolean).join(", ") : text;
  }
  return text;
}

function pendingMarks(store) {
  return Object.entries(store.pending).map(([key, value]) => h("span.pending-knob", {}, `${knobName(key)} ${oneLine(knobValue(value), 12)} pending`));
}

function runWords(run) {
  const parts = [run.method, run.preset, run.mask_id].filter((part) => typeof part === "string" && part);
  return parts.map((part) => oneLine(part, 48)).join(" · ");
}
