// The CSV files of a bundle: rows to text and back (RFC 4180, LF), with errors that name file and row.

import { readCell, writeCell } from "./cells.js";

const QUOTE_NEEDED = /[",\n\r]/;

export function writeTable(table, rows, runId) {
  const header = ["schema", "run_id", ...table.columns.map((column) => column.name), ...table.derived];
  const own = [SCHEMA.schema, writeCell("text", runId)];
  const lines = [header, ...rows.map((row) => [...own, ...table.columns.map((column) => writeColumn(column, row)), ...derivedCells(table, row)])];
  return `${lines.map((cells) => cells.map(quote).join(",")).join("\n")}\n`;
}

function writeColumn(column, row) {
  const [head, phase] = column.field.split(".");
  return writeCell(column.kind, phase === undefined ? row[head] : row[head][phase]);
}

function derivedCells(table, row) {
  if (!table.derived.length) return [];
  const kept = row.mask.split("1").length - 1;
  return [String(kept), writeCell("float", 1 - kept / Math.max(1, row.mask.length))];
}

function quote(cell) {
  return QUOTE_NEEDED.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

// Text -> [{field: value}], and the run ids that stand in it. Throws an Error with file, row and column.
export function readTable(table, text) {
  const rows = [];
  const runIds = new Set();
  let places = null;
  let number = 0;
  for (const cells of parseCsv(table.file, text)) {
    number += 1;
    if (places === null) {
      places = findColumns(table, cells);
      continue;
    }
    if (number - 1 > SCHEMA.maxRows) throw new Error(`${table.file} has more than ${SCHEMA.maxRows} rows, the most this page opens.`);
    if (cells.length !== places.width) throw new Error(`${table.file} row ${number} has ${cells.length} cells, expected ${places.width} as in its header.`);
    checkSchema(table.file, cells[places.schema]);
    runIds.add(cells[places.runId]);
    rows.push(readRow(table, places, cells, number));
  }
  if (places === null) throw new Error(`${table.file} is empty; its first row must name the columns.`);
  return {rows, runIds};
}

export function checkSchema(file, schema) {
  if (typeof schema !== "string" || !/^viasd-trace\/1(\.[0-9]+)?$/.test(schema)) {
    throw new Error(`${file} has the schema ${JSON.stringify(String(schema).slice(0, 40))}, this page reads ${SCHEMA.schema}.`);
  }
}

function findColumns(table, header) {
  for (const name of table.required) {
    if (!header.includes(name)) throw new Error(`${table.file} lacks the column ${name}; its first row must name the columns.`);
  }
  const known = table.columns.filter((column) => header.includes(column.name));
  for (const {name} of known) {
    if (header.indexOf(name) !== header.lastIndexOf(name)) throw new Error(`${table.file} names the column ${name} twice; keep one.`);
  }
  return {
    width: header.length,
    schema: header.indexOf("schema"),
    runId: header.indexOf("run_id"),
    columns: known.map((column) => ({column, index: header.indexOf(column.name)})),
  };
}

function readRow(table, places, cells, number) {
  const row = {};
  for (const {column, index} of places.columns) {
    const value = readCell(column, cells[index]);
    if (value === undefined) {
      const shown = JSON.stringify(cells[index].slice(0, 60));
      throw new Error(`${table.file} row ${number}: ${column.name} is ${shown}, expected ${column.wants}.`);
    }
    const [head, phase] = column.field.split(".");
    if (phase === undefined) row[head] = value;
    else if (value !== null) (row[head] ||= {})[phase] = value;
  }
  return row;
}

function* parseCsv(file, text) {
  let at = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  let cells = [];
  let line = 1;
  while (at < text.length) {
    const [cell, next] = text[at] === '"' ? quotedCell(file, text, at, line) : plainCell(text, at);
    cells.push(cell);
    at = next;
    if (text[at] === ",") {
      at += 1;
      if (at < text.length) continue;
      cells.push("");
    }
    if (text[at] === "\r") at += 1;
    if (at < text.length && text[at] !== "\n") throw new Error(`${file} row ${line} is not valid CSV: text stands behind a closing quote.`);
    at += 1;
    line += 1;
    yield cells;
    cells = [];
  }
}

function plainCell(text, start) {
  let at = start;
  while (at < text.length && text[at] !== "," && text[at] !== "\n" && text[at] !== "\r") at += 1;
  return [text.slice(start, at), at];
}

function quotedCell(file, text, start, line) {
  let at = start + 1;
  for (;;) {
    const end = text.indexOf('"', at);
    if (end < 0) throw new Error(`${file} row ${line} is not valid CSV: a quote is never closed.`);
    if (text[end + 1] !== '"') return [text.slice(start + 1, end).replaceAll('""', '"'), end + 1];
    at = end + 2;
  }
}
