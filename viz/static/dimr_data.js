// One layer-mask search, grown from messages or read from a file: what was scored, what is best, what was judged.
// A file may be anybody's, so masks and numbers are looked at before they are believed.

import { isNumber } from "./dom.js";

export const MOST_LAYERS = 512;
const BEST = 10; // masks that count as the best ones
const RECENT = 20; // scored masks that the time left is judged by
const ENDED = new Set(["done", "stopped", "error"]);
const FIELDS = ["step", "method", "mask", "cost", "best_cost", "t_us", "accepted"];

export const METHODS = {
  even: "evenly spaced", random: "random", bo: "Bayesian", greedy: "greedy removal", single: "one layer alone",
};

export class MaskSearch {
  constructor() {
    this.facts = {};
    this.points = []; // masks of the wanted size
    this.others = []; // masks that skip fewer layers, scored to learn what layers cost
    this.all = []; // both, in order
    this.byMask = new Map(); // mask -> index in points
    this.best = null; // index in points
    this.found = null; // the mask file without its history
    this.status = {state: "idle", text: ""};
  }

  get layers() {
    const first = this.all[0] || this.found;
    return first ? first.mask.length : this.facts.layers || 0;
  }

  get live() {
    return this.status.state !== "idle" && !ENDED.has(this.status.state);
  }

  fold(message) {
    if (message.kind === "search") this.facts = message.facts;
    else if (message.kind === "mask") this.add(message);
    else if (message.kind === "found") this.found = message.found;
    else if (message.kind === "status") this.status = {state: message.state, text: message.text || ""};
  }

  add(message) {
    const row = Object.fromEntries(FIELDS.map((name) => [name, message[name] ?? null]));
    row.cost = real(row.cost);
    row.best_cost = real(row.best_cost);
    this.all.push(row);
    if (row.step === null) {
      this.others.push(row);
      return;
    }
    const index = this.points.push(row) - 1;
    if (!this.byMask.has(row.mask)) this.byMask.set(row.mask, index);
    if (Number.isFinite(row.cost) && (this.best === null || row.cost < this.points[this.best].cost)) this.best = index;
  }

  // Index of a mask's point, null when it was not scored here.
  indexOf(mask) {
    return this.byMask.get(mask) ?? null;
  }

  // Indices of the cheapest points, best first.
  ranked(count = BEST) {
    return this.points.map((_, index) => index).filter((index) => Number.isFinite(this.points[index].cost))
      .sort((a, b) => this.points[a].cost - this.points[b].cost || a - b).slice(0, count);
  }

  // How many of the best masks keep each layer, and of how many.
  kept() {
    const best = this.ranked();
    const counts = Array.from({length: this.layers}, (_, layer) => best.filter((index) => this.points[index].mask[layer] === "1").length);
    return {counts, of: best.length};
  }

  // What each layer's loss alone costs, where the search looked: layer -> nats.
  alone() {
    const costs = new Map();
    for (const {mask, cost} of this.others) {
      if (mask.indexOf("0") === mask.lastIndexOf("0")) costs.set(mask.indexOf("0"), cost);
    }
    return costs;
  }

  // Seconds until everything planned has been scored, by the pace of the last masks; null when nobody knows.
  secondsLeft() {
    const {planned} = this.facts;
    const recent = this.all.slice(-RECENT);
    if (!this.live || !isNumber(planned) || recent.length < 2) return null;
    const pace = (recent.at(-1).t_us - recent[0].t_us) / (recent.length - 1) / 1e6;
    return Math.max(0, planned - this.all.length) * Math.max(0, pace);
  }

  get curve() {
    const curve = this.found?.held_out?.curve;
    if (!curve || !Array.isArray(curve.points)) return null;
    const good = (point) => point && isMask(point.mask) && isNumber(point.skip_ratio) && isNumber(point.predicted?.speed);
    const points = curve.points.filter(good);
    return points.length ? {...curve, points} : null;
  }
}

function real(value) {
  return {inf: Infinity, "-inf": -Infinity, nan: NaN}[value] ?? value;
}

export function isMask(text, layers = text?.length) {
  return typeof text === "string" && text.length === layers && text.length <= MOST_LAYERS && /^[01]*1[01]*$/.test(text);
}

// Rows of dimr.csv as a search. Throws an Error with the row (the header is row 1).
export function fromRows(rows) {
  const search = new MaskSearch();
  const layers = rows.length ? rows[0].mask.length : 0;
  rows.forEach((row, index) => {
    if (!isMask(row.mask, layers)) throw new Error(`dimr.csv row ${index + 2} has no mask of ${layers} layers in 0 and 1.`);
    search.add(row);
  });
  if (rows.length) search.facts = {window: rows[0].tau, layers, skipped: rows[0].mask.split("0").length - 1};
  return search;
}

// A mask file with its history as a search. Throws an Error.
export function fromMaskFile(content) {
  const fail = (what) => {
    throw new Error(`The mask file ${what}.`);
  };
  if (content === null || typeof content !== "object" || content.schema !== "viasd-mask/1") fail("does not say viasd-mask/1 as its schema");
  const {history = [], ...found} = content;
  if (!isMask(found.mask)) fail("holds no mask in 0 and 1");
  if (!Array.isArray(history)) fail("has a history that is no list");
  const search = new MaskSearch();
  history.forEach((row, index) => {
    const good = row && isMask(row.mask, found.mask.length) && isNumber(real(row.cost)) && isNumber(row.t_us) && (row.step === null || Number.isSafeInteger(row.step));
    if (!good) fail(`has an entry ${index + 1} in its history that is no scored mask`);
    search.add(row);
  });
  search.found = found;
  const settings = found.settings && typeof found.settings === "object" ? found.settings : {};
  search.facts = {layers: found.mask.length, skipped: found.mask.split("0").length - 1, window: settings.score?.window};
  search.status = {state: "done", text: typeof found.origin === "string" ? found.origin : ""};
  return search;
}

// [3, 4, 5, 9] -> "3–5, 9"
export function ranges(numbers) {
  const parts = [];
  for (const number of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

export function skippedIn(mask) {
  return [...mask].flatMap((bit, layer) => (bit === "0" ? [layer] : []));
}

export function maskWords(mask) {
  const gone = skippedIn(mask);
  return `keeps ${mask.length - gone.length} of ${mask.length} layers, skips ${gone.length ? ranges(gone) : "none"}`;
}
