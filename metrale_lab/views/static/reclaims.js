// Reclaims: what admission had to evict before a prompt could go in.

import { ranges } from "./layout.js";
import { make, fillRows } from "./paint.js";

const SHOWN = 8;

export class Reclaims {
  static title = "Reclaims";
  static question = "What did admission have to evict?";

  constructor(store) {
    this.store = store;
    this.body = make("tbody");
    const heads = ["when", "for", "needed", "pinned", "target", "free", "evicted blocks", "enough"];
    const head = make("tr", {}, ...heads.map((one) => make("th", { scope: "col", text: one })));
    this.table = make(
      "table",
      {},
      make("caption", { class: "ml-hidden", text: "Reclaims, latest first" }),
      make("thead", {}, head),
      this.body,
    );
    this.empty = make("p", {
      class: "ml-empty",
      text: "No reclaim yet: there was always room for the next prompt.",
    });
    this.element = make("div", { class: "ml-scroll" }, this.empty, this.table);
  }

  draw(state) {
    const rows = state.reclaims.slice(-SHOWN).reverse();
    this.empty.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    const sign = rows.map((row) => row.seq_no).join();
    if (sign === this.sign) return;
    this.sign = sign;
    fillRows(
      this.body,
      rows.map((row) => [
        `${row.t_s.toFixed(2)} s`,
        row.request >= 0 ? `request ${row.request} (${row.reason})` : row.reason,
        row.blocks_needed,
        row.pinned_blocks,
        row.target,
        `${row.free_before} → ${row.free}`,
        row.evicted ? this.evicted(row) : "none",
        row.satisfied ? "✓ yes" : "✗ no",
      ]),
    );
  }

  evicted(row) {
    const more = row.evicted - row.blocks.length;
    return ranges(row.blocks, 12) + (more > 0 ? ` and ${more} more` : "");
  }
}
