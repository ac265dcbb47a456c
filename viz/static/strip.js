// The cycle strip as a control: drag or use the arrow keys to stand at a cycle, hover to read about one.

import { clamp, h, setText } from "./dom.js";
import { knobName, knobValue, TIERS } from "./words.js";
import { oneLine } from "./shown_text.js";
import { Pace } from "./pace.js";
import { layoutStrip, paintStrip } from "./strip_paint.js";
import { colours } from "./figures.js";

const HEIGHT = 58;
const LIVE_MS = 100;
const STEPS = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10};

export class Strip {
  constructor(app, player) {
    this.app = app;
    this.player = player;
    this.layout = null;
    this.pace = new Pace(LIVE_MS, () => this.draw());
    this.canvas = h("canvas.strip", {
      role: "slider",
      tabindex: 0,
      "aria-label": "Cycle",
      "aria-valuemin": 0,
      "aria-valuemax": 0,
      "aria-valuenow": 0,
    });
    this.note = h("p.strip-note", {});
    this.node = h("div.strip-box", {}, this.canvas, this.note);
    this.listen();
    new ResizeObserver(() => app.touch("size")).observe(this.node);
  }

  listen() {
    const {canvas} = this;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.player.pause();
      this.moveTo(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) this.moveTo(event);
      else this.describe(this.indexAt(event));
    });
    canvas.addEventListener("pointerleave", () => this.describe(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  indexAt(event) {
    if (!this.layout || !this.layout.cells.length) return null;
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    const cell = this.layout.cells[clamp(Math.floor(x / this.layout.cellWidth), 0, this.layout.cells.length - 1)];
    return cell.to - 1;
  }

  moveTo(event) {
    const index = this.indexAt(event);
    if (index === null) return;
    this.app.unpin();
    this.app.setOption("follow", false);
    this.app.setHead(index);
    this.describe(index);
  }

  key(event) {
    const {app} = this;
    let next = null;
    if (event.key in STEPS) next = app.headIndex + STEPS[event.key];
    else if (event.key === "Home") next = 0;
    else if (event.key === "End") next = Infinity;
    if (next === null) return;
    event.preventDefault();
    this.player.pause();
    app.unpin();
    app.setHead(Math.max(0, next));
  }

  describe(index) {
    const {store} = this.app;
    const cycle = index === null ? null : store.cycles[index];
    setText(this.note, cycle ? cycleSentence(store, index) : lastChange(store));
  }

  sync(changes) {
    if (changes.has("data") || changes.has("run")) this.layout = null;
    if (["head", "cursor", "run", "size", "theme", "options"].some((change) => changes.has(change))) this.pace.now();
    else if (changes.has("data")) this.pace.ask();
    if (changes.has("data") || changes.has("run") || changes.has("head")) this.describe(changes.has("head") && this.app.head !== null ? this.app.headIndex : null);
  }

  draw() {
    const {app, canvas} = this;
    const width = Math.floor(this.node.clientWidth);
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(HEIGHT * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(HEIGHT * ratio);
      canvas.style.height = `${HEIGHT}px`;
      this.layout = null;
    }
    this.layout ??= layoutStrip(app.store, width);
    const context = canvas.getContext("2d");
    const look = colours(app, context);
    paintStrip(context, this.layout, look, {width, height: HEIGHT, ratio, head: app.headIndex, focus: app.focusCycle, pinned: app.pinned});
    this.announce();
  }

  announce() {
    const {canvas, app} = this;
    const index = app.headIndex;
    canvas.setAttribute("aria-valuemax", Math.max(0, app.store.cycles.length - 1));
    canvas.setAttribute("aria-valuenow", Math.max(0, index));
    canvas.setAttribute("aria-valuetext", index < 0 ? "no cycles yet" : cycleSentence(app.store, index));
  }
}

function cycleSentence(store, index) {
  const cycle = store.cycles[index];
  const [from, to] = store.spans[index];
  const rows = store.tokens.slice(from, to).filter((row) => row.emitted);
  const parts = TIERS.map(({verdict, short}) => [rows.filter((row) => row.verdict === verdict).length, short])
    .filter(([count]) => count)
    .map(([count, short]) => `${count} ${short}`);
  const changes = store.events
    .filter((row) => row.type === "param_change" && row.cycle === cycle.cycle)
    .map((row) => `${changeWords(row)} applied`);
  const commit = `${cycle.committed} token${cycle.committed === 1 ? "" : "s"}`;
  return [`Cycle ${cycle.cycle}: ${commit}${parts.length ? ` (${parts.join(", ")})` : ""}`, ...changes].join(" · ");
}

function changeWords(row) {
  return `${oneLine(knobName(row.key), 24)} ${oneLine(knobValue(row.old), 24)} → ${oneLine(knobValue(row.new), 24)}`;
}

function lastChange(store) {
  if (!store.cycles.length) return "";
  const row = store.applied;
  const change = row ? ` · ${changeWords(row)} applied @cycle ${row.cycle}` : "";
  const count = store.cycles.length;
  return `${count} cycle${count === 1 ? "" : "s"}: a bar each, height = tokens committed${change}`;
}
