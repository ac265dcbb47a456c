// Saving a search (dimr.csv, the mask file) and opening one: dimr.csv, a trace bundle that holds it, or a mask
// file. All of it stays in the browser.

import { fromMaskFile, fromRows } from "./dimr_data.js";
import { readTable, writeTable } from "./tables.js";
import { readZip } from "./zip.js";

const TABLE = SCHEMA.tables.find((table) => table.file === "dimr.csv");

// The masks of the wanted size as dimr.csv. The id names no run: it only keeps rows of one search together.
export function csvOf(search) {
  const tau = search.facts.window ?? 0;
  const rows = search.points.map((point) => ({...point, tau}));
  return writeTable(TABLE, rows, crypto.randomUUID?.() ?? `search-${Date.now()}`);
}

// The mask file, as the command line writes it, with every mask that was scored.
export function maskFileOf(search) {
  const rows = search.all.map((row) => `    ${JSON.stringify(row)}`).join(",\n");
  const head = JSON.stringify(search.found, null, 2).replace(/\n?\}$/, "");
  return `${head},\n  "history": [\n${rows}\n  ]\n}\n`;
}

// File objects -> MaskSearch. Throws an Error whose message is a sentence.
export async function openSearch(files) {
  const [file] = files;
  if (!file) throw new Error("No file was chosen.");
  if (file.size > SCHEMA.maxZipBytes) throw new Error(`The file is larger than ${SCHEMA.maxZipBytes / 2 ** 20} MiB, the most this page opens.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (file.name.endsWith(".json")) return fromMaskFile(parsed("The mask file", text(file.name, bytes)));
  if (file.name.endsWith(".csv")) return fromTable(text(file.name, bytes));
  const {"dimr.csv": table, [SCHEMA.runFile]: run} = await readZip(bytes, [...SCHEMA.tables.map((one) => one.file), SCHEMA.runFile], SCHEMA.maxBytes);
  if (!table) throw new Error("The bundle holds no dimr.csv.");
  return fromTable(text("dimr.csv", table), run && parsed(SCHEMA.runFile, text(SCHEMA.runFile, run))?.n_layers);
}

function fromTable(csv, layers) {
  const {rows, runIds} = readTable(TABLE, csv);
  if (!rows.length) throw new Error("dimr.csv holds no scored mask.");
  if (runIds.size > 1) throw new Error("dimr.csv holds rows of more than one search.");
  const search = fromRows(rows, layers);
  const taken = layers === undefined ? ", a digit taken as a layer" : "";
  search.status = {state: "done", text: `${rows.length} masks from dimr.csv${taken}`};
  return search;
}

function text(name, bytes) {
  try {
    return new TextDecoder("utf-8", {fatal: true}).decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) throw new Error(`${name.slice(0, 60)} is not UTF-8 text.`);
    throw error;
  }
}

function parsed(name, json) {
  try {
    return JSON.parse(json);
  } catch (error) {
    if (error instanceof SyntaxError) throw new Error(`${name} is not valid JSON.`);
    throw error;
  }
}

