// A bundle the reader chose (a zip, or its files one by one) as a read-only replay. It stays in the browser,
// and it is treated as hostile: sizes, names, rows and cells are checked before anything is shown.

import { readZip } from "./zip.js";
import { checkSchema, readTable } from "./tables.js";
import { sha256 } from "./sha256.js";
import { Store, byCycle } from "./store.js";

const NAMES = [...SCHEMA.tables.map((table) => table.file), SCHEMA.runFile];
const OPTIONAL = new Set(["tree.csv", "dimr.csv", "events.csv"]);
let imported = 0;

// File objects -> Store. Throws an Error whose message is a sentence.
export async function importFiles(files) {
  const contents = await collect([...files]);
  return toStore(contents);
}

async function collect(files) {
  if (!files.length) throw new Error("No file was chosen.");
  const size = files.reduce((sum, file) => sum + file.size, 0);
  const zip = files.length === 1 && !NAMES.includes(files[0].name);
  const most = zip ? SCHEMA.maxZipBytes : SCHEMA.maxBytes;
  if (size > most) throw new Error(`The file is larger than ${most / 2 ** 20} MiB, the most this page opens.`);
  if (zip) return readZip(new Uint8Array(await files[0].arrayBuffer()), NAMES, SCHEMA.maxBytes);
  const contents = {};
  for (const file of files) {
    if (NAMES.includes(file.name)) contents[file.name] = new Uint8Array(await file.arrayBuffer());
  }
  return contents;
}

function toStore(contents) {
  for (const name of NAMES) {
    if (!contents[name] && !OPTIONAL.has(name)) throw new Error(`${name} is missing; a trace bundle holds ${NAMES.join(", ")}.`);
  }
  const run = readRun(contents[SCHEMA.runFile]);
  const {files: recorded, ...described} = run;
  const rows = {};
  const problems = [];
  for (const table of SCHEMA.tables) {
    const bytes = contents[table.file];
    if (!bytes) {
      rows[table.file] = [];
      continue;
    }
    const read = readTable(table, decodeText(table.file, bytes));
    rows[table.file] = read.rows;
    if ([...read.runIds].some((id) => id !== run.run_id)) problems.push(`${table.file} holds rows of another run than run.json.`);
    const entry = recorded && typeof recorded === "object" ? recorded[table.file] : null;
    if (!entry || entry.sha256 !== sha256(bytes)) problems.push(`${table.file} does not match its sha256 in run.json; it was changed after it was written.`);
  }
  return build(described, rows, problems);
}

function readRun(bytes) {
  let run;
  try {
    run = JSON.parse(decodeText(SCHEMA.runFile, bytes));
  } catch (error) {
    if (error instanceof SyntaxError) throw new Error(`${SCHEMA.runFile} is not valid JSON.`);
    throw error;
  }
  if (run === null || typeof run !== "object" || Array.isArray(run)) throw new Error(`${SCHEMA.runFile} does not hold an object.`);
  checkSchema(SCHEMA.runFile, run.schema);
  return run;
}

function decodeText(name, bytes) {
  try {
    return new TextDecoder("utf-8", {fatal: true}).decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) throw new Error(`${name} is not UTF-8 text; save the file as UTF-8.`);
    throw error;
  }
}

function build(run, rows, problems) {
  imported += 1;
  const store = new Store(`file-${imported}`, {replay: true});
  const grouped = {rows: byCycle(rows["tokens.csv"]), tree: byCycle(rows["tree.csv"]), events: byCycle(rows["events.csv"])};
  store.start({run});
  for (const cycle of rows["cycles.csv"]) {
    const message = {cycle};
    for (const [name, groups] of Object.entries(grouped)) {
      message[name] = groups.get(cycle.cycle) || [];
      groups.delete(cycle.cycle);
    }
    store.addCycle(message);
  }
  if (grouped.rows.size) {
    const [stray] = grouped.rows.keys();
    throw new Error(`tokens.csv speaks of cycle ${stray}, which cycles.csv does not list.`);
  }
  const positions = rows["tokens.csv"].filter((row) => row.emitted).map((row) => row.out_pos);
  if (new Set(positions).size !== positions.length || positions.includes(null)) {
    throw new Error("tokens.csv gives two emitted tokens the same out_pos, or one none.");
  }
  store.end({run, dimr: rows["dimr.csv"], events: [...grouped.events.values()].flat()});
  store.problems.push(...problems);
  return store;
}
