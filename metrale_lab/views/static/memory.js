// The memory bar: why no more fits. Its parts add up to what the engine holds.

import { bytesText } from "./layout.js";
import { fillBox, legendItem, make, say, sized } from "./paint.js";

const BLOCK_PARTS = ["private", "shared", "reserved", "held", "cached", "free"];
const HEIGHT = 30;

export class Memory {
  static title = "Memory";
  static question = "Why can't I fit more?";

  constructor(store) {
    this.store = store;
    this.canvas = make("canvas", { class: "ml-canvas", role: "img", "aria-label": "Memory bar" });
    this.blocks = make("canvas", { class: "ml-canvas", role: "img", "aria-label": "KV blocks" });
    this.legend = make("div", { class: "ml-legend" });
    this.info = make("p", { class: "ml-info" });
    this.empty = make("p", { class: "ml-empty", text: "The engine has not said its sizes yet." });
    this.full = make(
      "div",
      {},
      make("div", { class: "ml-label", text: "everything" }),
      this.canvas,
      make("div", { class: "ml-label", text: "KV blocks alone" }),
      this.blocks,
      this.legend,
      this.info,
    );
    this.element = make("div", {}, this.empty, this.full);
  }

  draw(state, theme, width) {
    const memory = state.header.memory;
    const total = Object.values(memory).reduce((all, one) => all + one, 0);
    this.empty.hidden = total > 0;
    this.full.hidden = total === 0;
    if (!total) return;
    const fixed = Object.keys(memory).filter((name) => !BLOCK_PARTS.includes(name));
    const parts = [...fixed, ...BLOCK_PARTS]
      .filter((name) => memory[name])
      .map((name) => ({ name, bytes: memory[name], paint: paintOf(theme, name) }));
    const blocks = parts.filter((part) => BLOCK_PARTS.includes(part.name));
    bar(this.canvas, parts, theme, width);
    bar(this.blocks, blocks, theme, width);
    const items = parts.map((part) =>
      legendItem(part.name, part.paint, make("b", { text: bytesText(part.bytes) })),
    );
    this.legend.replaceChildren(...items);
    const pool = blocks.reduce((all, part) => all + part.bytes, 0);
    const { free = 0, cached = 0 } = memory;
    say(
      this.info,
      `${bytesText(total)} in all; of the ${bytesText(pool)} for KV blocks ` +
        `${bytesText(free)} are free and ${bytesText(cached)} can be evicted.`,
    );
  }
}

function paintOf(theme, name) {
  const fixed = {
    weights: { colour: theme.muted, hatch: "" },
    workspace: { colour: theme.grid, hatch: "///" },
    graphs: { colour: theme.grid, hatch: "|||" },
  };
  return theme.blocks[name] ?? fixed[name] ?? { colour: theme.grid, hatch: "---" };
}

function bar(canvas, parts, theme, width) {
  const context = sized(canvas, width, HEIGHT);
  const total = parts.reduce((all, part) => all + part.bytes, 0);
  let x = 0;
  for (const { bytes, paint } of parts) {
    const w = (bytes / total) * width;
    fillBox(context, paint, x, 0, Math.max(w - 1, 0.5), HEIGHT);
    x += w;
  }
}
