// One run, grown from messages: the browser's counterpart of viasd_core.trace.Trace.

const TABLE = Object.fromEntries(SCHEMA.tables.map((table) => [table.file, table]));
const ROW_TYPES = {
  rows: "tokens.csv",
  cycle: "cycles.csv",
  tree: "tree.csv",
  dimr: "dimr.csv",
  events: "events.csv",
};
const EMITTED = new Set(SCHEMA.emitted);
const SPECIAL_NUMBERS = {inf: Infinity, "-inf": -Infinity, nan: NaN};

export class Store {
  constructor(id, {replay = false} = {}) {
    this.id = id;
    this.replay = replay; // a file the reader opened, not a run of this page
    this.run = {};
    this.tokens = [];
    this.cycles = [];
    this.tree = [];
    this.dimr = [];
    this.events = [];
    this.spans = []; // cycle index -> [first, end) in tokens
    this.out = new Map(); // out_pos -> index in tokens
    this.changed = []; // indices of token rows changed after they were added
    this.counts = Object.fromEntries(SCHEMA.verdicts.map((verdict) => [verdict, 0]));
    this.hidden = 0;
    this.status = {state: replay ? "done" : "idle", text: ""};
    this.pending = {};
    this.applied = null;
    this.finish = null;
    this.ended = false;
    this.started = false;
    this.problems = [];
  }

  fold(message) {
    if (message.kind === "cycle") this.addCycle(message);
    else if (message.kind === "start") this.start(message);
    else if (message.kind === "status") this.setStatus(message);
    else if (message.kind === "end") this.end(message);
  }

  start(message) {
    this.run = message.run || {};
    this.started = true;
  }

  end(message) {
    this.run = {...this.run, ...message.run};
    this.finish = this.run.finish_reason || this.finish;
    this.ended = true;
    this.pending = {};
    for (const row of message.dimr || []) this.dimr.push(complete("dimr", row));
    for (const row of message.events || []) this.addEvent(row);
    if (!["error", "stopped"].includes(this.status.state)) this.status = {state: "done", text: ""};
  }

  setStatus({state, text, pending, ...more}) {
    this.status = {state, text: text || "", ...more};
    if (pending) this.pending = {...pending};
  }

  addCycle(message) {
    const cycle = complete("cycle", message.cycle);
    cycle.phase_us = message.cycle.phase_us || {};
    for (const position of message.retracted || []) this.retract(position, cycle.cycle);
    for (const edit of message.edits || []) this.edit(edit);
    const first = this.tokens.length;
    for (const row of message.rows || []) this.addToken(row);
    for (const audit of message.audits || []) this.audit(audit, cycle.cycle);
    this.spans.push([first, this.tokens.length]);
    this.cycles.push(cycle);
    for (const row of message.tree || []) this.tree.push(complete("tree", row));
    for (const row of message.events || []) this.addEvent(row);
    this.finish = message.finish || this.finish;
  }

  addToken(wire) {
    const row = complete("rows", wire);
    row.at = this.cycles.length; // index of its cycle
    row.gone = null; // cycle that took it back
    row.place = row.out_pos; // where it stood, kept when it is taken back
    if (row.emitted && row.out_pos !== null) this.out.set(row.out_pos, this.tokens.length);
    this.count(row, 1);
    this.tokens.push(row);
  }

  count(row, step) {
    if (row.emitted || !EMITTED.has(row.verdict)) this.counts[row.verdict] += step;
    if (row.emitted && !row.shown) this.hidden += step;
  }

  addEvent(wire) {
    const row = complete("events", wire);
    this.events.push(row);
    if (row.type === "param_change") {
      delete this.pending[row.key];
      this.applied = row;
    }
  }

  change(position, action) {
    const index = this.out.get(position);
    if (index === undefined) {
      this.problems.push(`a message speaks of output token ${position}, which does not stand`);
      return;
    }
    const row = this.tokens[index];
    this.count(row, -1);
    action(row);
    this.count(row, 1);
    this.changed.push(index);
  }

  retract(position, cycle) {
    this.change(position, (row) => Object.assign(row, {was: row.verdict, verdict: "retracted", emitted: false, out_pos: null, gone: cycle}));
    this.out.delete(position);
  }

  edit({out_pos, shown, data, text, text_json}) {
    const words = text_json === undefined ? text : String(JSON.parse(text_json));
    this.change(out_pos, (row) => Object.assign(row, {shown, data, text: words}));
  }

  audit({out_pos, rank, logp, accept, kl}, cycle) {
    this.change(out_pos, (row) => Object.assign(row, {
      audit_cycle: cycle,
      audit_rank: rank,
      audit_logp: real(logp),
      audit_accept: real(accept),
      audit_kl: real(kl),
    }));
  }

  // Indices of surviving emitted rows, in output order.
  emitted() {
    return [...this.out.entries()].sort((a, b) => a[0] - b[0]).map((entry) => entry[1]);
  }

  text() {
    const parts = this.emitted().map((index) => this.tokens[index]).filter((row) => row.shown).map((row) => row.data);
    return new TextDecoder("utf-8", {ignoreBOM: true}).decode(fromHex(parts.join("")));
  }

  get live() {
    return this.started && !this.ended && !this.replay;
  }

  eventsIn(cycle) {
    return this.events.filter((row) => row.cycle === cycle);
  }
}

// A row with every field: what the message says, defaults for the rest.
export function complete(name, wire) {
  const table = TABLE[ROW_TYPES[name]];
  const row = {...table.defaults};
  for (const {field, kind} of table.columns) {
    if (Object.hasOwn(wire, field)) row[field] = kind.startsWith("float") ? real(wire[field]) : wire[field];
  }
  if (wire.text_json !== undefined) row.text = String(JSON.parse(wire.text_json));
  if (name === "rows") {
    row.data = wire.data || "";
    row.alt = (wire.alt || []).map(([token, logp]) => [token, real(logp)]);
  }
  return row;
}

function real(value) {
  return typeof value === "string" && Object.hasOwn(SPECIAL_NUMBERS, value) ? SPECIAL_NUMBERS[value] : value ?? null;
}

export function fromHex(hex) {
  const bytes = new Uint8Array(hex.length >> 1);
  for (let index = 0; index < bytes.length; index += 1) bytes[index] = Number.parseInt(hex.substr(2 * index, 2), 16);
  return bytes;
}

// Cycle number -> its rows, in their order.
export function byCycle(rows) {
  const groups = new Map();
  for (const row of rows) {
    if (!groups.has(row.cycle)) groups.set(row.cycle, []);
    groups.get(row.cycle).push(row);
  }
  return groups;
}
