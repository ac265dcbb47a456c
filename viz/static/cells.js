// One CSV cell, written and read as viasd_core.cells does: floats as Python prints them, text that another
// program could misread as a JSON string.

const FLOAT = /^(?:-?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,4})?|inf)|nan)$/;
const INTEGER = /^-?[0-9]{1,18}$/;
const FORMULA_STARTS = '=+-@"\uff1d\uff0b\uff0d\uff20';
const UNPRINTABLE = /[\p{C}\p{Z}]/u;

export function pythonFloat(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Object.is(value, -0)) return "-0.0";
  const [mantissa, exponentText] = value.toExponential().split("e");
  const exponent = Number(exponentText);
  if (value !== 0 && (exponent < -4 || exponent >= 16)) {
    return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const plain = plainDecimal(mantissa, exponent);
  return plain.includes(".") ? plain : `${plain}.0`;
}

function plainDecimal(mantissa, exponent) {
  const sign = mantissa.startsWith("-") ? "-" : "";
  const digits = mantissa.replace(/[-.]/g, "");
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  const rest = digits.slice(exponent + 1);
  return sign + whole + (rest ? `.${rest}` : "");
}

// JSON with every character outside printable ASCII escaped, as json.dumps writes it.
export function asciiJson(text) {
  return JSON.stringify(text).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function writeText(text) {
  const printable = !UNPRINTABLE.test(text.replaceAll(" ", ""));
  const plain = printable && (FLOAT.test(text) || text === "" || !FORMULA_STARTS.includes([...text][0]));
  return plain ? text : asciiJson(text);
}

function writeAlternatives(pairs) {
  if (!pairs.length) return "";
  const items = pairs.map(([token, logp]) => `[${token}, ${Number.isFinite(logp) ? pythonFloat(logp) : "null"}]`);
  return `[${items.join(", ")}]`;
}

const WRITERS = {
  int: String,
  ints: (values) => values.join(" "),
  float: pythonFloat,
  flag: (value) => (value ? "1" : "0"),
  text: writeText,
  json: asciiJson,
  hex: String,
  alt: writeAlternatives,
  enum: String,
};

export function writeCell(kind, value) {
  if (kind.endsWith("?")) return value === null || value === undefined ? "" : WRITERS[kind.slice(0, -1)](value);
  return WRITERS[kind](value);
}

class BadCell extends Error {}

function refuse() {
  throw new BadCell("cell");
}

function readInteger(cell) {
  if (!INTEGER.test(cell)) refuse();
  const value = Number(cell);
  return Number.isSafeInteger(value) ? value : refuse();
}

function readFloat(cell) {
  if (!FLOAT.test(cell)) refuse();
  if (cell === "nan") return NaN;
  return cell.endsWith("inf") ? Number(`${cell.slice(0, -3)}Infinity`) : Number(cell);
}

function readJsonText(cell) {
  const text = readJson(cell);
  return typeof text === "string" ? text : refuse();
}

function readJson(cell) {
  try {
    return JSON.parse(cell);
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) return refuse();
    throw error;
  }
}

function readAlternatives(cell) {
  if (cell === "") return [];
  const pairs = readJson(cell);
  const good = (pair) => Array.isArray(pair) && pair.length === 2 && Number.isSafeInteger(pair[0])
    && (pair[1] === null || typeof pair[1] === "number");
  if (!Array.isArray(pairs) || !pairs.every(good)) refuse();
  return pairs.map(([token, logp]) => [token, logp === null ? -Infinity : logp]);
}

const READERS = {
  int: readInteger,
  ints: (cell) => (cell === "" ? [] : cell.split(" ").map(readInteger)),
  float: readFloat,
  flag: (cell) => (cell === "1" || cell === "0" ? cell === "1" : refuse()),
  text: (cell) => (cell.startsWith('"') ? readJsonText(cell) : cell),
  json: readJsonText,
  hex: (cell) => (/^(?:[0-9a-fA-F]{2})*$/.test(cell) ? cell.toLowerCase() : refuse()),
  alt: readAlternatives,
};

// The value of a cell, or undefined when it is not of the column's kind.
export function readCell(column, cell) {
  try {
    if (column.kind === "enum") return column.values.includes(cell) ? cell : undefined;
    if (!column.kind.endsWith("?")) return READERS[column.kind](cell);
    return cell === "" ? null : READERS[column.kind.slice(0, -1)](cell);
  } catch (error) {
    if (error instanceof BadCell) return undefined;
    throw error;
  }
}
