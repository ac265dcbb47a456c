// Zip files: written without compression, read stored or deflated, as hostile input.

const CRC = new Uint32Array(256).map((_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});
const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const DATE_1980 = 0x21;

export function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

// files: {name: Uint8Array} -> Uint8Array
export function writeZip(files) {
  const entries = Object.entries(files).map(([name, data]) => ({name: new TextEncoder().encode(name), data, crc: crc32(data)}));
  const body = entries.reduce((size, {name, data}) => size + 30 + name.length + data.length, 0);
  const directory = entries.reduce((size, {name}) => size + 46 + name.length, 0);
  const out = new Uint8Array(body + directory + 22);
  const view = new DataView(out.buffer);
  let offset = 0;
  for (const entry of entries) {
    entry.offset = offset;
    view.setUint32(offset, LOCAL, true);
    writeSizes(view, offset + 4, entry);
    out.set(entry.name, offset + 30);
    out.set(entry.data, offset + 30 + entry.name.length);
    offset += 30 + entry.name.length + entry.data.length;
  }
  for (const entry of entries) {
    view.setUint32(offset, CENTRAL, true);
    view.setUint16(offset + 4, 20, true);
    writeSizes(view, offset + 6, entry);
    view.setUint32(offset + 42, entry.offset, true);
    out.set(entry.name, offset + 46);
    offset += 46 + entry.name.length;
  }
  view.setUint32(offset, END, true);
  view.setUint16(offset + 8, entries.length, true);
  view.setUint16(offset + 10, entries.length, true);
  view.setUint32(offset + 12, directory, true);
  view.setUint32(offset + 16, body, true);
  return out;
}

// Version needed, flags, method 0, time, date, crc, sizes, name length: the part both headers share.
function writeSizes(view, at, {name, data, crc}) {
  view.setUint16(at, 20, true);
  view.setUint16(at + 2, 0x0800, true);
  view.setUint16(at + 8, DATE_1980, true);
  view.setUint32(at + 10, crc, true);
  view.setUint32(at + 14, data.length, true);
  view.setUint32(at + 18, data.length, true);
  view.setUint16(at + 22, name.length, true);
}

// bytes -> {name: Uint8Array} of the wanted names. Throws an Error with a sentence for the reader.
export async function readZip(bytes, wanted, maxBytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const members = listMembers(view, bytes);
  checkMembers(members, wanted, maxBytes);
  const files = {};
  for (const member of members) {
    if (wanted.includes(member.name)) files[member.name] = await extract(view, bytes, member);
  }
  return files;
}

function listMembers(view, bytes) {
  const end = findEnd(view);
  const count = view.getUint16(end + 10, true);
  let offset = view.getUint32(end + 16, true);
  const members = [];
  for (let index = 0; index < count; index += 1) {
    if (offset + 46 > view.byteLength || view.getUint32(offset, true) !== CENTRAL) throw damaged();
    const length = view.getUint16(offset + 28, true);
    members.push({
      flags: view.getUint16(offset + 8, true),
      method: view.getUint16(offset + 10, true),
      crc: view.getUint32(offset + 16, true),
      packed: view.getUint32(offset + 20, true),
      size: view.getUint32(offset + 24, true),
      start: view.getUint32(offset + 42, true),
      name: new TextDecoder().decode(bytes.subarray(offset + 46, offset + 46 + length)),
    });
    offset += 46 + length + view.getUint16(offset + 30, true) + view.getUint16(offset + 32, true);
  }
  return members;
}

function findEnd(view) {
  const lowest = Math.max(0, view.byteLength - 22 - 65535);
  for (let offset = view.byteLength - 22; offset >= lowest; offset -= 1) {
    if (view.getUint32(offset, true) === END) return offset;
  }
  throw damaged();
}

function checkMembers(members, wanted, maxBytes) {
  for (const {name} of members) {
    if (/^[/\\]|^[A-Za-z]:|\0/.test(name) || name.split(/[/\\]/).includes("..")) {
      throw new Error("The zip holds a name that leaves its folder; it is refused.");
    }
  }
  for (const name of wanted) {
    if (members.filter((member) => member.name === name).length > 1) throw new Error(`The zip holds ${name} more than once; keep one.`);
  }
  if (members.reduce((sum, member) => sum + member.size, 0) > maxBytes) {
    throw new Error(`The trace is larger than ${maxBytes / 2 ** 20} MiB uncompressed, the most this page opens.`);
  }
}

async function extract(view, bytes, member) {
  const {start, packed, size, method, flags} = member;
  if (flags & 1) throw new Error(`${member.name} is encrypted; save the zip without a password.`);
  if (start + 30 > view.byteLength || view.getUint32(start, true) !== LOCAL) throw damaged();
  const from = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
  if (from + packed > view.byteLength) throw damaged();
  const raw = bytes.subarray(from, from + packed);
  if (method !== 0 && method !== 8) throw new Error(`${member.name} is packed in a way this page cannot read; save it as a plain zip.`);
  const data = method === 0 ? raw : await inflate(raw, size);
  if (data.length !== size || crc32(data) !== member.crc) throw damaged();
  return data;
}

// Stops as soon as more comes out than the directory promised, so a small zip cannot fill the memory.
async function inflate(raw, size) {
  const reader = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const out = new Uint8Array(size);
  let filled = 0;
  try {
    for (let step = await reader.read(); !step.done; step = await reader.read()) {
      if (filled + step.value.length > size) throw damaged();
      out.set(step.value, filled);
      filled += step.value.length;
    }
  } catch (error) {
    await reader.cancel().catch(() => undefined);
    throw error instanceof TypeError ? damaged() : error;
  }
  return out.subarray(0, filled);
}

function damaged() {
  return new Error("The file is not a zip that can be read; it may have been cut short.");
}
