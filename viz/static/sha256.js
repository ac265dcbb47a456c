// SHA-256 (FIPS 180-4). The browser's own is missing on plain http, where this page may be served.

const PRIMES = firstPrimes(64);
const ROUND = new Uint32Array(PRIMES.map((prime) => fraction(Math.cbrt(prime))));
const START = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));

function firstPrimes(count) {
  const primes = [];
  for (let value = 2; primes.length < count; value += 1) {
    if (primes.every((prime) => value % prime)) primes.push(value);
  }
  return primes;
}

function fraction(value) {
  return Math.floor((value - Math.floor(value)) * 2 ** 32) >>> 0;
}

function rotate(word, by) {
  return (word >>> by) | (word << (32 - by));
}

export function sha256(bytes) {
  const padded = pad(bytes);
  const view = new DataView(padded.buffer);
  const state = new Uint32Array(START);
  const words = new Uint32Array(64);
  for (let offset = 0; offset < padded.length; offset += 64) {
    expand(view, offset, words);
    compress(state, words);
  }
  return [...state].map((word) => word.toString(16).padStart(8, "0")).join("");
}

function pad(bytes) {
  const padded = new Uint8Array((((bytes.length + 8) >> 6) + 1) << 6);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(padded.length - 4, (bytes.length << 3) >>> 0);
  return padded;
}

function expand(view, offset, words) {
  for (let index = 0; index < 16; index += 1) words[index] = view.getUint32(offset + 4 * index);
  for (let index = 16; index < 64; index += 1) {
    const near = words[index - 2];
    const far = words[index - 15];
    const low = rotate(far, 7) ^ rotate(far, 18) ^ (far >>> 3);
    const high = rotate(near, 17) ^ rotate(near, 19) ^ (near >>> 10);
    words[index] = words[index - 16] + low + words[index - 7] + high;
  }
}

function compress(state, words) {
  let [a, b, c, d, e, f, g, last] = state;
  for (let index = 0; index < 64; index += 1) {
    const high = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const first = (last + high + ((e & f) ^ (~e & g)) + ROUND[index] + words[index]) | 0;
    const low = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const second = (low + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [a, b, c, d, e, f, g, last] = [(first + second) | 0, a, b, c, (d + first) | 0, e, f, g];
  }
  [a, b, c, d, e, f, g, last].forEach((value, index) => {
    state[index] += value;
  });
}
