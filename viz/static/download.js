// Hands the reader a file made in the browser.

import { h } from "./dom.js";

export function download(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, {type}));
  const link = h("a", {href: url, download: name, hidden: true});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
