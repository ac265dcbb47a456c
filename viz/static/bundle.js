// A shown run as the files of a trace bundle, built here, so that what is exported is what is on the screen.

import { sha256 } from "./sha256.js";
import { writeZip } from "./zip.js";
import { writeTable } from "./tables.js";
import { asciiJson, pythonFloat } from "./cells.js";
import { cycleTime, endOf, summarise } from "./summary.js";

const ROWS = {"tokens.csv": "tokens", "cycles.csv": "cycles", "tree.csv": "tree", "dimr.csv": "dimr", "events.csv": "events"};

// {file name: text} of the whole bundle.
export function bundleFiles(store) {
  const run = describeRun(store);
  const files = {};
  const entries = {};
  for (const table of SCHEMA.tables) {
    const rows = store[ROWS[table.file]];
    files[table.file] = writeTable(table, rows, String(run.run_id));
    entries[table.file] = {sha256: sha256(new TextEncoder().encode(files[table.file])), rows: rows.length};
  }
  files[SCHEMA.runFile] = `${dump({...run, files: entries}, 0)}\n`;
  return files;
}

export function bundleZip(store) {
  const encoder = new TextEncoder();
  const files = Object.entries(bundleFiles(store)).map(([name, text]) => [name, encoder.encode(text)]);
  return writeZip(Object.fromEntries(files));
}

// run.json's content. A run that has not ended is described as far as it came, and says so.
export function describeRun(store) {
  const run = {schema: SCHEMA.schema, run_id: store.id, definitions: SCHEMA.definitions, ...store.run};
  delete run.files;
  if (store.ended) return run;
  const rows = store.emitted().map((index) => store.tokens[index]);
  const last = store.cycles[store.cycles.length - 1];
  const wall = last ? endOf(last) / 1e6 : 0;
  return {
    ...run,
    token_ids: rows.map((row) => row.token_id),
    text: store.text(),
    finish_reason: store.finish || "cancelled",
    complete: Boolean(store.finish),
    totals: totals(store),
    wall_s: wall,
    tokens_per_s: wall ? rows.length / wall : 0,
  };
}

// summarise() in the keys of run.json.
function totals(store) {
  const {regions, drafted, phases_us, end_us, audit, ...kept} = summarise(store);
  const {slim, ...judged} = audit;
  const phases = Object.entries(phases_us).map(([phase, us]) => [phase, us / 1000]);
  return {...kept, audit: judged, phases_ms: Object.fromEntries(phases)};
}

export function fileStem(store) {
  const id = String(store.run.run_id || store.id).replace(/[^A-Za-z0-9]/g, "").slice(0, 8) || "run";
  return `viasd-${id}`;
}

// JSON as json.dumps(indent=1) prints it; a number that is not whole is printed as Python prints it.
function dump(value, depth) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return asciiJson(value);
  if (typeof value === "number") return dumpNumber(value);
  if (typeof value === "boolean") return String(value);
  const list = Array.isArray(value);
  const items = list
    ? value.map((item) => dump(item, depth + 1))
    : Object.entries(value).map(([key, item]) => `${asciiJson(key)}: ${dump(item, depth + 1)}`);
  const [open, close] = list ? "[]" : "{}";
  if (!items.length) return open + close;
  const gap = `\n${" ".repeat(depth + 1)}`;
  return `${open}${gap}${items.join(`,${gap}`)}\n${" ".repeat(depth)}${close}`;
}

function dumpNumber(value) {
  if (Number.isInteger(value) && Math.abs(value) < 1e21) return String(value);
  return Number.isFinite(value) ? pythonFloat(value) : asciiJson(pythonFloat(value));
}
