// The drafter's self-check at load, from run.json: how often its first choice was the verifier's on a built-in
// text, and a warning when that is near chance. The file may be anybody's, so every value is looked at first.

import { h, isNumber, percent, setText } from "./dom.js";
import { shownText } from "./shown_text.js";

const MOST = 600; // characters of a warning
const HINT = "positions of a built-in text where the drafter's first choice is the verifier's, looked at when the drafter was loaded";

// {agreement, warning}, each "" when there is nothing to say.
export function checkWords({drafter_check: check}) {
  if (check === null || typeof check !== "object") return {agreement: "", warning: ""};
  const {agreement, positions, warning} = check;
  const known = isNumber(agreement) && agreement >= 0 && agreement <= 1;
  const counted = Number.isSafeInteger(positions) && positions > 0;
  return {
    agreement: known ? `drafter agreement ${percent(agreement)}${counted ? ` of ${positions} positions` : ""}` : "",
    warning: typeof warning === "string" ? shownText(warning.trim(), MOST) : "",
  };
}

export class DrafterCheck {
  constructor(app) {
    this.app = app;
    this.agreement = h("span.run-words.drafter-agreement", {title: HINT});
    this.warning = h("p.drafter-warning", {role: "status"});
  }

  sync(changes) {
    if (!["data", "run", "status"].some((change) => changes.has(change))) return;
    const words = checkWords(this.app.store.run);
    setText(this.agreement, words.agreement);
    setText(this.warning, words.warning);
  }
}
