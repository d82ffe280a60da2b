// Invariants: is the engine in order at this tick?

import { atTick } from "./layout.js";
import { make, say } from "./paint.js";

const UNCHECKED = "Not checked yet: the first check comes within two seconds.";

const NOT_APPLICABLE = "not applicable: ";

/** Word, sign and colour of one law. */
export function verdictOf(holds, detail, theme) {
  if (!holds) return ["broken", "✗", theme.bad];
  if (detail.startsWith(NOT_APPLICABLE)) return ["not applicable", "–", theme.muted];
  return ["holds", "✓", theme.good];
}

/** How many of the laws say nothing about this engine. */
export function notApplicable(laws) {
  const count = laws.filter((one) => one.detail.startsWith(NOT_APPLICABLE)).length;
  return count ? `, ${count} of them not applicable` : "";
}

export class Invariants {
  static title = "Invariants";
  static question = "Is the engine in order at this tick?";

  constructor(store) {
    this.store = store;
    this.verdict = make("p", { class: "ml-verdict" });
    this.list = make("ul", { class: "ml-laws" });
    this.element = make("div", {}, this.verdict, this.list);
  }

  draw(state, theme) {
    const { laws } = state;
    const when = atTick(state.header.laws_step);
    const broken = laws.filter((one) => !one.holds);
    const [first] = broken;
    if (!laws.length) say(this.verdict, UNCHECKED);
    else if (first) say(this.verdict, `✗ ${first.law} is broken ${when}: ${first.detail}`);
    else say(this.verdict, `✓ All ${laws.length} laws hold ${when}${notApplicable(laws)}.`);
    const colour = laws.length ? theme.good : theme.muted;
    this.verdict.style.color = first ? theme.bad : colour;
    const sign = JSON.stringify([laws, theme.name]);
    if (sign === this.sign) return;
    this.sign = sign;
    this.list.replaceChildren(...laws.map((one) => this.row(one, theme)));
  }

  row({ law, holds, detail }, theme) {
    const [word, sign, colour] = verdictOf(holds, detail, theme);
    const mark = make("span", { text: sign, role: "img", "aria-label": word });
    mark.style.color = colour;
    return make("li", { title: detail }, mark, ` ${law}`, make("small", { text: ` ${detail}` }));
  }
}
