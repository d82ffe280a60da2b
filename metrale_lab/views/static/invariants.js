// Invariants: is the engine in order at this tick?

import { make, say } from "./paint.js";

const UNCHECKED = "Not checked yet: the first check comes within two seconds.";

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
    const tick = state.header.laws_step;
    const broken = laws.filter((one) => !one.holds);
    const [first] = broken;
    if (!laws.length) say(this.verdict, UNCHECKED);
    else if (first) say(this.verdict, `✗ ${first.law} is broken at tick ${tick}: ${first.detail}`);
    else say(this.verdict, `✓ All ${laws.length} laws hold at tick ${tick}.`);
    const colour = laws.length ? theme.good : theme.muted;
    this.verdict.style.color = first ? theme.bad : colour;
    const sign = JSON.stringify([laws, theme.name]);
    if (sign === this.sign) return;
    this.sign = sign;
    this.list.replaceChildren(...laws.map((one) => this.row(one, theme)));
  }

  row({ law, holds, detail }, theme) {
    const word = holds ? "holds" : "broken";
    const mark = make("span", { text: holds ? "✓" : "✗", role: "img", "aria-label": word });
    mark.style.color = holds ? theme.good : theme.bad;
    return make("li", { title: detail }, mark, ` ${law}`, make("small", { text: ` ${detail}` }));
  }
}
