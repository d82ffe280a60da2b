// Adapters: which are loaded, who uses them, and what each has cached.

import { bytesText, counted } from "./layout.js";
import { adapterLines } from "./names.js";
import { fillRows, make, say } from "./paint.js";

const HEADS = ["adapter", "slot", "state", "users", "cached blocks", "rank", "size"];
const DASH = "–";

export class Adapters {
  static title = "Adapters";
  static question = "Which adapters are loaded, and what is shared?";

  constructor(store) {
    this.store = store;
    this.body = make("tbody");
    const head = make("tr", {}, ...HEADS.map((one) => make("th", { scope: "col", text: one })));
    this.table = make(
      "table",
      {},
      make("caption", { class: "ml-hidden", text: "Adapters, the base model first" }),
      make("thead", {}, head),
      this.body,
    );
    this.info = make("p", { class: "ml-info" });
    this.empty = make("p", {
      class: "ml-empty",
      text: "No adapter has been loaded yet: lab.load_adapter(name, path) loads one.",
    });
    const scroll = make("div", { class: "ml-scroll" }, this.table);
    this.element = make("div", {}, this.empty, scroll, this.info);
  }

  draw(state) {
    const lines = adapterLines(state);
    this.empty.hidden = lines.length > 0;
    this.table.hidden = this.info.hidden = lines.length === 0;
    const sign = JSON.stringify(lines);
    if (sign === this.sign) return;
    this.sign = sign;
    fillRows(this.body, lines.map(cellsOf));
    const free = state.adapters.filter((one) => one.state === "free").length;
    say(
      this.info,
      `${counted(state.adapters.length, "slot")}, ${free} free. ` +
        "An adapter reuses the blocks of its own generation only.",
    );
  }
}

function cellsOf(line) {
  const { word, slot, state, users, cached, rank, bytes } = line;
  const size = bytes === undefined ? DASH : bytesText(bytes);
  return [word, slot ?? DASH, state || DASH, users, cached, rank ?? DASH, size];
}
