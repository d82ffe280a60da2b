// The block map: where each block is, whose it is, and whether it is shared.

import { BLOCK_WORDS, describeBlock, holdersOf } from "./blocks.js";
import { cellAt, gridLayout, moveCell, ranges } from "./layout.js";
import { hatch, inkOn, legendItem, make, rgb, say, sized, TextTable } from "./paint.js";

const MARKS_FROM = 6; // CSS pixels of a cell from which hatches, grid and labels are drawn
const LABELS_FROM = 15;
const MAX_HEIGHT = { normal: 300, projector: 420 };
const RARE = new Set(["reserved", "held"]); // in the legend only when there are any
const LARGEST = { normal: 26, projector: 38 };

export class BlockMap {
  static title = "Block map";
  static question = "Where is each block, whose is it, is it shared?";

  constructor(store, options) {
    this.store = store;
    this.maxHeight = MAX_HEIGHT[options.size];
    this.largest = LARGEST[options.size];
    this.cursor = null;
    this.hovered = null;
    this.base = make("canvas", { class: "ml-pixels" });
    this.overlay = make("canvas", {
      class: "ml-over",
      tabindex: "0",
      role: "img",
      "aria-label": "Block map; arrow keys move over the blocks, Enter selects a sequence",
      onpointermove: (event) => this.hover(event),
      onpointerleave: () => this.setHover(null),
      onclick: (event) => this.pick(this.cellOf(event)),
      onkeydown: (event) => this.key(event),
      onblur: () => this.setCursor(null),
    });
    this.stack = make("div", { class: "ml-stack" }, this.base, this.overlay);
    this.legend = make("div", { class: "ml-legend" });
    this.info = make("p", { class: "ml-info", "aria-live": "polite" });
    this.table = new TextTable("Blocks by state", ["state", "blocks", "which"], (state) =>
      this.rows(state),
    );
    this.element = make("div", {}, this.stack, this.legend, this.info, this.table.element);
  }

  draw(state, theme, width) {
    this.state = state;
    this.theme = theme;
    this.holders = holdersOf(state);
    this.grid = gridLayout(state.blocks.length, width, this.maxHeight, this.largest);
    this.drawPixels();
    this.drawMarks();
    this.drawLegend();
    this.tell();
    this.table.draw(state);
  }

  drawPixels() {
    const { columns, rows, cell } = this.grid;
    const { blocks } = this.state;
    if (this.base.width !== columns || this.base.height !== rows) {
      this.base.width = columns;
      this.base.height = rows;
    }
    this.base.style.width = `${columns * cell}px`;
    this.base.style.height = `${rows * cell}px`;
    const palette = BLOCK_WORDS.map((word) => {
      const [r, g, b] = rgb(this.theme.blocks[word].colour);
      return (255 << 24) | (b << 16) | (g << 8) | r;
    });
    const context = this.base.getContext("2d");
    const image = context.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < blocks.length; i++) pixels[i] = palette[blocks[i] & 7];
    context.putImageData(image, 0, 0);
  }

  drawMarks() {
    const { columns, rows, cell } = this.grid;
    const context = sized(this.overlay, columns * cell, rows * cell);
    if (cell >= MARKS_FROM) {
      this.drawStates(context);
      this.drawGrid(context);
    }
    this.drawOutlines(context);
  }

  drawStates(context) {
    const { cell } = this.grid;
    const { blocks } = this.state;
    const stamps = BLOCK_WORDS.map((word) => this.stamp(this.theme.blocks[word], cell));
    context.font = `600 ${Math.round(cell * 0.46)}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let i = 0; i < blocks.length; i++) {
      const [x, y] = this.place(i);
      const code = blocks[i] & 7;
      if (stamps[code]) context.drawImage(stamps[code], x, y, cell, cell);
      const holder = this.holders.get(i)?.[0];
      if (holder && cell >= LABELS_FROM) {
        const { request, id } = holder.sequence;
        const colour = this.theme.blocks[BLOCK_WORDS[code]].colour;
        context.fillStyle = colour;
        context.fillRect(x + cell * 0.24, y + cell * 0.2, cell * 0.52, cell * 0.6);
        context.fillStyle = inkOn(colour);
        context.fillText(`${request >= 0 ? request : id}`, x + cell / 2, y + cell / 2 + 0.5);
      }
    }
  }

  stamp(paint, cell) {
    if (!paint.hatch) return null;
    const canvas = make("canvas");
    hatch(sized(canvas, cell, cell), paint, 0, 0, cell, cell);
    return canvas;
  }

  drawGrid(context) {
    const { columns, rows, cell } = this.grid;
    context.fillStyle = this.theme.background;
    for (let c = 0; c <= columns; c++) context.fillRect(c * cell - 0.75, 0, 1.5, rows * cell);
    for (let r = 0; r <= rows; r++) context.fillRect(0, r * cell - 0.75, columns * cell, 1.5);
    const empty = columns * rows - this.state.blocks.length;
    if (empty) {
      const left = (columns - empty) * cell;
      context.fillRect(left, (rows - 1) * cell, empty * cell, cell);
    }
  }

  drawOutlines(context) {
    const { cell } = this.grid;
    if (cell >= 4) {
      this.outline(context, this.state.changed, this.theme.blocks.changed.colour, 1.5);
    }
    const chosen = this.state.sequences.get(this.store.selection.sequence);
    if (chosen) {
      const cells = new Set(Array.from(chosen.table, (one) => Math.floor(one / this.state.group)));
      this.dimAllBut(context, cells);
      this.outline(context, cells, this.theme.ink, 2);
    }
    const at = this.cursor ?? this.store.selection.block;
    if (at !== null) this.outline(context, [at], this.theme.ink, 3);
  }

  dimAllBut(context, cells) {
    const { columns, rows, cell } = this.grid;
    context.beginPath();
    context.rect(0, 0, columns * cell, rows * cell);
    for (const one of cells) context.rect(...this.place(one), cell, cell);
    context.fillStyle = this.theme.background;
    context.globalAlpha = 0.66;
    context.fill("evenodd");
    context.globalAlpha = 1;
  }

  outline(context, cells, colour, width) {
    const { cell } = this.grid;
    context.strokeStyle = colour;
    context.lineWidth = width;
    for (const one of cells) {
      const [x, y] = this.place(one);
      context.strokeRect(x + width / 2, y + width / 2, cell - width, cell - width);
    }
  }

  place(i) {
    const { columns, cell } = this.grid;
    return [(i % columns) * cell, Math.floor(i / columns) * cell];
  }

  drawLegend() {
    const { counts } = this.state.header;
    const words = BLOCK_WORDS.filter((word) => counts[word] || !RARE.has(word));
    const sign = JSON.stringify([words.map((word) => counts[word]), this.theme.name]);
    if (sign === this.sign) return;
    this.sign = sign;
    const items = words.map((word) =>
      legendItem(word, this.theme.blocks[word], make("b", { text: `${counts[word] ?? 0}` })),
    );
    const changed = make("span", { class: "ml-key" });
    changed.append(make("span", { class: "ml-ring", "aria-hidden": "true" }), "changed just now");
    changed.firstChild.style.borderColor = this.theme.blocks.changed.colour;
    this.legend.replaceChildren(...items, changed);
  }

  tell() {
    const at = this.hovered ?? this.cursor ?? this.store.selection.block;
    const hint = "Point at a block to read it; click one to light up its sequence.";
    const there = at !== null && at < this.state.blocks.length;
    say(this.info, there ? describeBlock(this.state, this.holders, at) : hint);
  }

  rows(state) {
    return BLOCK_WORDS.map((word, code) => {
      const cells = [];
      state.blocks.forEach((byte, i) => (byte & 7) === code && cells.push(i));
      return [word, state.header.counts[word] ?? 0, ranges(cells)];
    });
  }

  cellOf(event) {
    const box = this.overlay.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return cellAt(this.grid, this.state.blocks.length, x, y);
  }

  hover(event) {
    if (!this.state) return;
    const cell = this.cellOf(event);
    this.setHover(cell < 0 ? null : cell);
  }

  setHover(cell) {
    if (cell === this.hovered) return;
    this.hovered = cell;
    if (this.state) this.tell();
  }

  setCursor(cell) {
    this.cursor = cell;
    if (!this.state) return;
    this.drawMarks();
    this.tell();
  }

  key(event) {
    if (!this.state) return;
    const count = this.state.blocks.length;
    if (event.key === "Enter" || event.key === " ") this.pick(this.cursor ?? 0);
    else if (event.key === "Escape") this.store.select({});
    else {
      const next = moveCell(this.grid, count, this.cursor ?? 0, event.key);
      if (next === this.cursor) return;
      this.setCursor(next);
    }
    event.preventDefault();
    event.stopPropagation();
  }

  pick(cell) {
    if (cell < 0) return;
    const holders = (this.holders.get(cell) ?? []).map((one) => one.sequence.id);
    const { selection } = this.store;
    // A click on a shared block again goes to its next holder, then to none.
    const next = holders[holders.indexOf(selection.sequence) + 1];
    const again = selection.block === cell && next === undefined;
    this.store.select(again ? {} : { block: cell, sequence: next ?? null });
  }
}
