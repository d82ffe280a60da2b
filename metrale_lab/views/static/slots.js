// Slots: which sequence sits where, which buffer counts, who moved; and the snapshots below.

import { bytesText } from "./layout.js";
import { fillBox, legendItem, make, say, sized, TextTable } from "./paint.js";

const BOX = { width: 76, height: 46, gap: 8, label: 16 };
const ARCS = 30; // room above the first row for the arrows
const SHOWN = 64;

export class Slots {
  static title = "Slots";
  static question = "Which sequence's state sits where, and what is kept of it?";

  constructor(store) {
    this.store = store;
    this.canvas = make("canvas", { class: "ml-canvas", role: "img", "aria-label": "Slots" });
    this.kept = make("canvas", { class: "ml-canvas", role: "img", "aria-label": "Snapshots" });
    this.label = make("div", { class: "ml-label" });
    this.legend = make("div", { class: "ml-legend" });
    this.info = make("p", { class: "ml-info" });
    this.empty = make("p", { class: "ml-empty", text: "The engine has not said its slots yet." });
    const heads = ["slot or snapshot", "state", "owner or use", "buffer"];
    this.table = new TextTable("Slots and snapshots", heads, (state) => [
      ...slotsOf(state).map((one) => [one.slot, one.word, one.owner, one.parity ?? "–"]),
      ...state.slots.snapshots.map((one) => [
        `snapshot ${one.id}`,
        `${one.depth} tokens`,
        useOf(one),
        "–",
      ]),
    ]);
    this.full = make(
      "div",
      {},
      this.canvas,
      this.label,
      this.kept,
      this.legend,
      this.info,
      this.table.element,
    );
    this.element = make("div", {}, this.empty, this.full);
  }

  draw(state, theme, width) {
    const sizes = state.header.slots;
    this.empty.hidden = sizes.total > 0;
    this.full.hidden = sizes.total === 0;
    if (!sizes.total) return;
    const hybrid = sizes.dummy >= 0;
    const slots = slotsOf(state).slice(0, SHOWN);
    this.drawSlots(slots, state.slots.moves, theme, width);
    this.label.hidden = this.kept.hidden = !hybrid;
    if (hybrid) this.drawSnapshots(state, sizes, theme, width);
    const held = state.slots.owners.filter((owner) => owner >= 0).length;
    const dense = "; on a dense model they hold no state";
    const each = hybrid ? `, ${bytesText(sizes.bytes)} each` : dense;
    const move = state.slots.moves.at(-1);
    const moved = move ? ` Last move: ${ownerOf(move)} from slot ${move.slot} to ${move.to}.` : "";
    say(this.info, `${held} of ${sizes.total} slots are held${each}.${moved}`);
    this.drawLegend(theme, hybrid);
    this.table.draw(state);
  }

  drawSlots(slots, moves, theme, width) {
    const grid = gridOf(slots.length, width);
    const context = sized(this.canvas, width, ARCS + grid.rows * grid.high);
    const spot = (slot) => [
      (slot % grid.columns) * grid.wide,
      ARCS + Math.floor(slot / grid.columns) * grid.high,
    ];
    for (const one of slots) {
      const [x, y] = spot(one.slot);
      const middle = x + BOX.width / 2;
      const top = y + BOX.label;
      const hasBuffers = one.parity !== null;
      text(context, theme.muted, `${one.slot}`, x, y + 11, 11, "left");
      fillBox(context, paintOf(theme, one.word), x, top, BOX.width, BOX.height);
      const line = top + (hasBuffers ? 14 : 23);
      plate(context, theme, one.owner || one.word, middle, line, 12, theme.ink);
      if (hasBuffers) buffers(context, theme, one.parity, middle, top + 34);
    }
    for (const move of moves) {
      if (Math.max(move.slot, move.to) >= slots.length) continue;
      arrow(context, theme.blocks.changed.colour, spot(move.slot), spot(move.to));
    }
  }

  drawSnapshots(state, sizes, theme, width) {
    const { snapshots } = state.slots;
    say(this.label, `Snapshots: ${sizes.stored} of ${sizes.places} places`);
    this.kept.hidden = snapshots.length === 0;
    const shown = snapshots.slice(-SHOWN);
    const grid = gridOf(shown.length, width);
    const high = BOX.height + BOX.gap;
    const context = sized(this.kept, width, grid.rows * high);
    shown.forEach((one, i) => {
      const [x, y] = [(i % grid.columns) * grid.wide, Math.floor(i / grid.columns) * high];
      fillBox(context, theme.parts.snapshots, x, y, BOX.width, BOX.height);
      plate(context, theme, `${one.depth} tokens`, x + BOX.width / 2, y + 14, 11, theme.ink);
      plate(context, theme, useOf(one), x + BOX.width / 2, y + 33, 10, theme.muted);
    });
  }

  drawLegend(theme, hybrid) {
    const sign = `${theme.name} ${hybrid}`;
    if (sign === this.sign) return;
    this.sign = sign;
    const words = [
      ["free", paintOf(theme, "free")],
      ["held by a sequence", paintOf(theme, "held")],
    ];
    if (hybrid) {
      words.push(["dummy of padding rows", paintOf(theme, "dummy")]);
      words.push(["snapshot", theme.parts.snapshots]);
    }
    words.push(["moved (compaction)", theme.blocks.changed]);
    this.legend.replaceChildren(...words.map(([word, paint]) => legendItem(word, paint)));
  }
}

/** Every slot with its state, its owner in words and its committed buffer (null: it has none). */
function slotsOf(state) {
  const { dummy } = state.header.slots;
  const slots = state.slots.owners.map((owner, slot) => {
    if (owner < 0) return { slot, word: "free", owner: "", parity: null };
    const sequence = state.sequences.get(owner);
    const request = sequence?.request ?? -1;
    const parity = dummy >= 0 && sequence ? sequence.length % 2 : null;
    return { slot, word: "held", owner: ownerOf({ sequence: owner, request }), parity };
  });
  if (dummy >= 0) slots.push({ slot: dummy, word: "dummy", owner: "", parity: null });
  return slots;
}

function ownerOf({ sequence, request }) {
  return request >= 0 ? `r${request}` : `seq ${sequence}`;
}

function useOf({ holders, adapter }) {
  const use = holders ? `held by ${holders}` : "evictable";
  return adapter ? `${use}, a${adapter}` : use;
}

function gridOf(count, width) {
  const wide = BOX.width + BOX.gap;
  const columns = Math.max(1, Math.floor((width + BOX.gap) / wide));
  const high = BOX.label + BOX.height + BOX.gap;
  return { columns, rows: Math.ceil(count / columns), wide, high };
}

function paintOf(theme, word) {
  if (word === "held") return theme.parts.slots;
  return theme.blocks[word === "free" ? "free" : "held"];
}

function text(context, colour, words, x, y, size, align, weight = "") {
  context.font = `${weight} ${size}px system-ui, sans-serif`;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillStyle = colour;
  context.fillText(words, x, y);
}

/** Words on a plate of the background, which read on any paint. */
function plate(context, theme, words, x, y, size, colour, weight = "") {
  context.font = `${weight} ${size}px system-ui, sans-serif`;
  const wide = Math.min(context.measureText(words).width + 6, BOX.width);
  context.fillStyle = theme.background;
  context.fillRect(x - wide / 2, y - size / 2 - 2, wide, size + 4);
  text(context, colour, words, x, y + 1, size, "center", weight);
}

/** Both buffers of a slot; the one that counts is filled. */
function buffers(context, theme, parity, x, y) {
  for (const buffer of [0, 1]) {
    const counts = buffer === parity;
    const words = `${counts ? "●" : "○"} ${buffer}`;
    const colour = counts ? theme.ink : theme.muted;
    plate(context, theme, words, x + (buffer - 0.5) * 34, y, 10, colour, counts ? "bold" : "");
  }
}

function arrow(context, colour, [x0, y0], [x1, y1]) {
  const [from, to] = [x0 + BOX.width / 2, x1 + BOX.width / 2];
  const [start, end] = [y0 + BOX.label - 1, y1 + BOX.label - 1];
  const top = Math.min(start, end) - Math.min(ARCS + 10, 14 + Math.abs(from - to) / 8);
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 1.6;
  context.beginPath();
  context.moveTo(from, start);
  context.bezierCurveTo(from, top, to, top, to, end - 5);
  context.stroke();
  context.beginPath();
  context.moveTo(to, end);
  context.lineTo(to - 4, end - 7);
  context.lineTo(to + 4, end - 7);
  context.fill();
}
