// One layer-mask search, grown from messages or read from a file: what was scored, what is best, what was judged.
// A file may be anybody's, so masks and numbers are looked at before they are believed.

import { isNumber } from "./dom.js";

const MOST_UNITS = 512; // digits of a mask
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

  // Digits of a mask: layers, or halves of layers.
  get units() {
    const first = this.all[0] || this.found;
    return first ? first.mask.length : (this.facts.layers || 0) * (this.halves ? 2 : 1);
  }

  // Whether a mask has two digits a layer, its attention and its MLP.
  get halves() {
    return this.facts.granularity === "sublayer";
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

  // How many of the best masks keep each unit, and of how many.
  kept() {
    const best = this.ranked();
    const counts = Array.from({length: this.units}, (_, unit) => best.filter((index) => this.points[index].mask[unit] === "1").length);
    return {counts, of: best.length};
  }

  // What each unit's loss alone costs, where the search looked: unit -> nats.
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

export function isMask(text, units = text?.length) {
  return typeof text === "string" && text.length === units && text.length <= MOST_UNITS && /^[01]*1[01]*$/.test(text);
}

// What a mask says of a search, in a model of `layers` layers; of an unknown number, whole layers are taken.
function factsOf(mask, layers, window) {
  const halves = Number.isSafeInteger(layers) && mask.length === 2 * layers;
  return {layers: halves ? layers : mask.length, granularity: halves ? "sublayer" : "layer", skipped: skippedIn(mask).length, window};
}

// Rows of dimr.csv as a search; the table itself does not say of how many `layers` the model is. Throws an Error
// with the row (the header is row 1).
export function fromRows(rows, layers) {
  const search = new MaskSearch();
  const units = rows.length ? rows[0].mask.length : 0;
  rows.forEach((row, index) => {
    if (!isMask(row.mask, units)) throw new Error(`dimr.csv row ${index + 2} has no mask of ${units} digits 0 and 1.`);
    search.add(row);
  });
  if (rows.length) search.facts = factsOf(rows[0].mask, layers, rows[0].tau);
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
  const {layers = found.mask.length} = found;
  if (![layers, 2 * layers].includes(found.mask.length)) fail("has a mask that is not as long as its layers, or twice as long");
  if (!Array.isArray(history)) fail("has a history that is no list");
  const search = new MaskSearch();
  history.forEach((row, index) => {
    const good = row && isMask(row.mask, found.mask.length) && isNumber(real(row.cost)) && isNumber(row.t_us) && (row.step === null || Number.isSafeInteger(row.step));
    if (!good) fail(`has an entry ${index + 1} in its history that is no scored mask`);
    search.add(row);
  });
  search.found = found;
  const settings = found.settings && typeof found.settings === "object" ? found.settings : {};
  search.facts = factsOf(found.mask, layers, settings.score?.window);
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

// A mask in words; with `halves` a digit is the attention or the MLP of a layer.
export function maskWords(mask, halves = false) {
  const gone = skippedIn(mask);
  const kept = mask.length - gone.length;
  if (!halves) return `keeps ${kept} of ${mask.length} layers, skips ${gone.length ? ranges(gone) : "none"}`;
  const lost = new Set(gone);
  const whole = (unit) => lost.has(unit ^ 1);
  const layersOf = (wanted) => ranges(gone.filter(wanted).map((unit) => unit >> 1));
  const parts = [
    ["all of", layersOf((unit) => whole(unit) && unit % 2 === 0)],
    ["the attention of", layersOf((unit) => !whole(unit) && unit % 2 === 0)],
    ["the MLP of", layersOf((unit) => !whole(unit) && unit % 2 === 1)],
  ].flatMap(([what, layers]) => (layers ? [`${what} ${layers}`] : []));
  const list = parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}` : parts[0] || "none";
  return `keeps ${kept} of ${mask.length} halves of layers, skips ${list}`;
}

// A unit by its name.
export function unitWords(unit, halves) {
  return halves ? `${unit % 2 ? "MLP" : "Attention"} of layer ${unit >> 1}` : `Layer ${unit}`;
}
