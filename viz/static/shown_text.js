// How a token's text appears: exact for what can be read, visible for what cannot. Display only; what is
// exported is untouched.

const MOST = 400;
// Controls other than newline and tab, marks that change the direction of writing, invisible format
// characters, line separators, lone surrogates and private-use characters.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\p{Cs}/gu;

export function shownText(text, most = MOST) {
  const cut = text.length > most ? [...text.slice(0, most + 1)].slice(0, most).join("") : text;
  const safe = cut.replace(/\r\n/g, "\n").replace(UNSAFE, picture);
  return text.length > most ? `${safe}… (${text.length} characters)` : safe;
}

function picture(char) {
  const code = char.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  if (code >= 0xd800 && code <= 0xdfff) return "\ufffd";
  return `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
}

// For cards and tables: whitespace visible, one line, in quotes.
export function quoted(text) {
  return `“${oneLine(text)}”`;
}

export function oneLine(text, most = 60) {
  const safe = shownText(text).replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$/g, (gap) => "·".repeat(gap.length));
  const points = [...safe];
  return points.length > most ? `${points.slice(0, most).join("")}…` : safe;
}

// A name for an incomplete character: its bytes.
export function tokenLabel(row) {
  if (row.text !== "") return quoted(row.text);
  return row.data ? `bytes ${row.data.match(/../g).slice(0, 8).join(" ")}` : "(empty)";
}

export function whitespaceClass(text) {
  if (text === "") return " part";
  if (!/^\s+$/.test(text)) return text.startsWith("\n") ? " nl" : ""; // the mark stands in front, so only a break in front gets one
  return text.includes("\n") ? " ws nl" : " ws";
}
