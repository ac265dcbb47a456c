// The repair tree of a cycle: the drawing, the node under the cursor in words, the way to the next repair, and
// whether repairs pay. The cursor is the token's: a node picks its token, a picked token its node.

import { fill, h, number, probability, ratio, isNumber, setText } from "./dom.js";
import { tokenLabel } from "./shown_text.js";
import { summarise } from "./summary.js";
import { Pace } from "./pace.js";
import { layoutTree } from "./tree_layout.js";
import { drawTree } from "./tree_draw.js";
import { emptySentence, judge, repairedCycles, repairedDepths, rowOf, standsAt, tokenOf, treeAt, treeSentences } from "./tree_data.js";
import { TreeKeys } from "./tree_keys.js";
import { billSentences, costSentence, repairBill } from "./repair_pays.js";

const LIVE_MS = 250;
const EDGE = 24; // pixels kept between a node that is walked to and the end of its box
const HINT = "Point at a node, or walk with the arrow keys; Enter or a click goes to its token.";
const RATE_HINT = "The rate that CURE maximises (arXiv 2608.00531, eq. 1). E[a]: kept drafts a cycle; C_d: draft and resync; C_v: slim, tree, full and gate; means over the cycles shown. "
  + "Branch 0 alone: without the extra tokens and the extra time.";

export class TreePanel {
  constructor(app, tokens) {
    this.app = app;
    this.tokens = tokens;
    this.at = -1; // index of the cycle that is drawn
    this.shown = ""; // run, cycle and size of the tree that is drawn
    this.room = 0; // pixels it was drawn for
    this.rows = [];
    this.layout = layoutTree([]);
    this.marks = [];
    this.current = null; // index of the place under the cursor
    this.picked = null; // index of the token that this panel picked last
    this.followed = ""; // tree and token that the cursor was set for
    this.pace = new Pace(LIVE_MS, () => this.draw());
    this.tally = new Pace(LIVE_MS, () => this.count());
    this.build();
    this.keys = new TreeKeys(this);
    app.root.addEventListener("viasd:tree", () => this.open());
    new ResizeObserver(() => app.touch("size")).observe(this.scroll);
  }

  build() {
    this.where = h("span.tree-where", {});
    this.back = h("button.small", {type: "button", title: "p", "aria-keyshortcuts": "p", onclick: () => this.jump(-1)}, "‹ previous repair");
    this.next = h("button.small", {type: "button", title: "n", "aria-keyshortcuts": "n", onclick: () => this.jump(1)}, "next repair ›");
    this.line = h("strong", {});
    this.note = h("p.tree-note", {});
    this.rate = h("p.tree-rate", {title: RATE_HINT, tabindex: 0});
    this.verdict = h("p.tree-verdict", {});
    this.bill = h("p.tree-bill", {});
    this.details = h("p.tree-details", {});
    this.scroll = h("div.tree-scroll", {});
    this.key = h("p.tree-key", {"aria-hidden": "true"}, KEY.map(([name, words]) => h("span", {}, h("i", {class: name}), words)));
    this.body = h("div.tree-body", {}, this.details, this.scroll, this.key, this.bill);
    this.node = h("section.tree-panel", {"aria-label": "Repair tree", hidden: true},
      h("div.panel-head", {}, h("h3", {}, "Repair tree"), this.where, h("span.gap", {}), this.back, this.next),
      h("p.tree-pays", {}, this.line), this.verdict, this.body, this.note, this.rate);
  }

  sync(changes) {
    if (!["data", "head", "cursor", "run", "size"].some((change) => changes.has(change))) return;
    const {store} = this.app;
    this.node.hidden = !store.tree.length && store.run.method !== "cure";
    if (this.node.hidden) return;
    if (this.isRunning) this.pace.ask();
    else this.pace.now();
    if (changes.has("run")) this.tally.now();
    else if (changes.has("data") || changes.has("head")) this.tally.ask();
  }

  // Brings the panel into view, without the sheet that would cover it on a phone.
  open() {
    const {app} = this;
    app.select(app.row, app.pinned, {sheet: false});
    requestAnimationFrame(() => this.node.scrollIntoView({block: "nearest"}));
  }

  // Whether the panel follows a run that decodes at this moment.
  get isRunning() {
    const {app} = this;
    return app.store.live && !app.pinned && app.head === null;
  }

  // While a run decodes, the newest repair stays in view; at rest, the tree of the cycle everything speaks of.
  get cycle() {
    const {app} = this;
    const newest = this.isRunning ? repairedCycles(app.store).at(-1) : undefined;
    return newest ?? app.focusCycle;
  }

  draw() {
    const {app} = this;
    const {store} = app;
    const at = this.cycle;
    const cycle = store.cycles[at];
    this.placeWords(cycle, at, repairedCycles(store));
    const rows = cycle ? treeAt(store, at) : [];
    const repaired = rows.some((row) => row.branch > 0);
    this.body.hidden = !repaired;
    const shown = `${store.id} ${at} ${rows.length}`;
    const room = this.scroll.clientWidth;
    if (shown === this.shown && room === this.room) return this.follow();
    const kept = shown === this.shown ? this.current : null; // only the room changed
    Object.assign(this, {at, rows, shown, room, current: null, marks: [], layout: layoutTree(repaired ? rows : [])});
    if (repaired) this.drawTree(cycle, kept);
    else this.collapse(cycle);
    return this.follow();
  }

  placeWords(cycle, at, repairs) {
    const place = repairs.indexOf(at);
    const which = place >= 0 ? ` · repair ${place + 1} of ${repairs.length}` : ` · ${repairs.length} repair${repairs.length === 1 ? "" : "s"} in this run`;
    setText(this.where, cycle ? `cycle ${cycle.cycle}${which}` : "");
    this.back.disabled = this.otherRepair(-1) === null;
    this.next.disabled = this.otherRepair(1) === null;
  }

  collapse(cycle) {
    setText(this.verdict, cycle ? emptySentence(this.rows, cycle) : "");
    this.scroll.replaceChildren();
  }

  drawTree(cycle, kept) {
    const tree = judge(this.rows, cycle, this.app.store.run);
    setText(this.verdict, treeSentences(tree, cycle).verdict);
    this.writeBill();
    const {node, marks} = drawTree(this.layout, this.room, {tau: cycle.tau_margin, repaired: repairedDepths(this.rows), kept0: tree.kept0}, (place) => this.words(place));
    node.setAttribute("aria-label", `Tree of cycle ${cycle.cycle}: ${this.rows.length} nodes. ${HINT}`);
    this.marks = marks;
    fill(this.scroll, node);
    this.keys.reset();
    this.mark(kept);
    this.showFork();
  }

  writeBill() {
    const {store} = this.app;
    const cycle = store.cycles[this.at];
    if (!cycle || this.body.hidden) return;
    const tree = judge(this.rows, cycle, this.app.store.run);
    const left = this.layout.left ? ` ${this.layout.left} rows hang nowhere or are too many to draw.` : "";
    setText(this.bill, `${treeSentences(tree, cycle).where} ${costSentence(store, cycle, tree)}${left}`);
  }

  // Starts with the fork that won, else with the first one, at the left end of the box.
  showFork() {
    const {places} = this.layout;
    const forks = places.filter((place) => place.first);
    const fork = forks.find((place) => place.row.on_best_path) ?? forks[0];
    const mark = fork ? this.marks[Math.max(0, fork.parent)] : null;
    if (mark) this.scroll.scrollLeft += mark.getBoundingClientRect().left - this.scroll.getBoundingClientRect().left - EDGE;
  }

  // The token under the cursor has its node, if it was drafted in this tree. Only a change of cursor or tree
  // moves the box: a reader may have scrolled it since.
  follow() {
    const {app} = this;
    const row = app.pinned && app.row !== null && app.store.tokens[app.row].at === this.at ? app.row : null;
    const wanted = `${this.shown} ${row}`;
    if (wanted === this.followed) return;
    this.followed = wanted;
    if (row !== null && row === this.picked) return; // the node that was clicked is marked already
    this.picked = null;
    const node = row === null ? null : rowOf(app.store, row);
    const place = node ? this.layout.places.findIndex((one) => one.row === node) : -1;
    this.mark(place >= 0 ? place : null);
    if (place >= 0) this.reveal(place);
  }

  mark(index) {
    if (this.current !== null) this.setCurrent(this.current, false);
    this.current = index;
    if (index !== null) this.setCurrent(index, true);
    this.describe(index);
  }

  setCurrent(index, on) {
    const mark = this.marks[index];
    if (!mark) return;
    mark.classList.toggle("now", on);
    if (on) mark.setAttribute("aria-current", "true");
    else mark.removeAttribute("aria-current");
  }

  // Says in words what stands at a place; without one, what to do.
  describe(index) {
    const place = index === null ? null : this.layout.places[index];
    setText(this.details, place ? this.words(place) : HINT);
  }

  words({row, depth}) {
    const {store} = this.app;
    const label = tokenLabel({text: row.text, data: ""});
    const p = isNumber(row.logp_draft) ? `log p ${number(row.logp_draft, 3)} (p ${probability(row.logp_draft)})` : "p unknown";
    const margin = isNumber(row.margin) ? `margin ${ratio(row.margin, 2)}` : "margin unknown";
    const verdict = row.accepted ? `accepted${row.on_best_path ? ", on the winning path" : ", not on the winning path"}` : row.verified ? "not accepted" : "not verified";
    const branch = row.branch ? `repair branch ${row.branch}` : "branch 0";
    const index = row.accepted && row.on_best_path ? null : standsAt(store, this.at, depth);
    const instead = index === null || store.tokens[index].token_id === row.token_id ? "" : `the text has ${tokenLabel(store.tokens[index])} here`;
    return [`${label} #${row.token_id}`, p, row.is_ufp ? `${margin}, uncertain` : margin, branch, `position ${depth}`, verdict, instead].filter(Boolean).join(" · ");
  }

  // Scrolls the box, and only it.
  reveal(index) {
    const mark = this.marks[index];
    if (!mark) return;
    const box = this.scroll.getBoundingClientRect();
    const at = mark.getBoundingClientRect();
    if (at.right > box.right - EDGE) this.scroll.scrollLeft += at.right - box.right + EDGE;
    if (at.left < box.left + EDGE) this.scroll.scrollLeft -= box.left + EDGE - at.left;
    if (at.bottom > box.bottom) this.scroll.scrollTop += at.bottom - box.bottom + EDGE / 2;
    if (at.top < box.top) this.scroll.scrollTop -= box.top - at.top + EDGE / 2;
  }

  // Picks the node's token, or the one that stands in its place.
  pick(index) {
    const {app} = this;
    const {row, depth} = this.layout.places[index];
    const token = tokenOf(app.store, this.at, row) ?? standsAt(app.store, this.at, depth);
    this.mark(index);
    if (token === null) return;
    this.picked = token;
    app.select(token, true, {sheet: false});
    const span = this.tokens.spans[token];
    if (span) this.tokens.reveal(span);
  }

  otherRepair(step) {
    const at = this.cycle;
    const found = repairedCycles(this.app.store).filter((index) => (index - at) * step > 0);
    return found.length ? found.at(step > 0 ? 0 : -1) : null;
  }

  jump(step) {
    const {app} = this;
    const target = this.otherRepair(step);
    if (target === null) return;
    if (app.head !== null && target > app.headIndex) app.setHead(target);
    const [from, to] = app.store.spans[target];
    const rows = app.store.tokens.slice(from, to);
    const repaired = rows.findIndex((row) => row.emitted && row.branch > 0);
    if (repaired >= 0) app.select(from + repaired, true, {sheet: false});
    else app.pinCycle(target, {sheet: false});
    const span = this.tokens.spans[app.row];
    if (span) this.tokens.reveal(span);
  }

  count() {
    const {app} = this;
    const {line, note, formula} = billSentences(repairBill(app.store, summarise(app.store, app.until), app.until));
    setText(this.line, line);
    setText(this.note, note);
    setText(this.rate, formula);
    this.writeBill(); // it compares with the other cycles
  }
}

const KEY = [
  ["key-best", "winner"],
  ["key-kept", "accepted"],
  ["key-lost", "not accepted"],
  ["key-ufp", "repaired position, with its margin"],
  ["key-ufp hollow", "uncertain, not repaired"],
  ["key-stop", "branch 0 ends"],
];
