// The prefix tree: what is reusable, and who reuses it.

import { counted, pathOf, treeLayout } from "./layout.js";
import { adapterLabel, adapterWord } from "./names.js";
import { fillBox, inkOn, legendItem, make, say, sized, TextTable } from "./paint.js";

const ROW = 24;
const FONT = { normal: 11, projector: 14 };
const MIN_ROW = 17; // a label still reads; more rows than fit are scrolled to
const VIEW_HEIGHT = { normal: 300, projector: 420 };
const MOST_PIXELS = 8000; // of the canvas's height
const GAP = 3;

export class PrefixTree {
  static title = "Prefix tree";
  static question = "What is reusable, and who reuses it?";

  constructor(store, options) {
    this.store = store;
    this.viewHeight = VIEW_HEIGHT[options.size];
    this.font = FONT[options.size];
    this.hovered = null;
    this.canvas = make("canvas", {
      class: "ml-canvas",
      tabindex: "0",
      role: "img",
      "aria-label": "Prefix tree; arrow keys move over the nodes, Enter shows a node's block",
      onpointermove: (event) => this.hover(event),
      onpointerleave: () => this.setHover(null),
      onclick: (event) => this.pick(this.nodeAt(event)),
      onkeydown: (event) => this.key(event),
    });
    this.legend = make("div", { class: "ml-legend" });
    this.info = make("p", { class: "ml-info", "aria-live": "polite" });
    this.empty = make("p", {
      class: "ml-empty",
      text: "Nothing is cached yet: full blocks come here when a prompt has been prefilled.",
    });
    const counts = ["tokens deep", "references", "pins"];
    this.table = new TextTable(
      "Nodes of the prefix tree",
      ["node", "parent", "block", ...counts, "adapter", "snapshot", "text"],
      (state) =>
        [...state.nodes.values()].map((node) => [
          node.id,
          node.parent < 0 ? "root" : node.parent,
          node.block,
          node.depth,
          node.refs,
          node.pins,
          adapterWord(state, node.adapter),
          this.kept.get(node.id) ?? "–",
          node.text,
        ]),
    );
    this.scroller = make("div", { class: "ml-scroller" }, this.canvas);
    this.scroller.style.maxHeight = `${this.viewHeight}px`;
    this.element = make(
      "div",
      {},
      this.empty,
      this.scroller,
      this.legend,
      this.info,
      this.table.element,
    );
  }

  draw(state, theme, width) {
    this.state = state;
    this.theme = theme;
    this.tree = treeLayout(state.nodes);
    this.kept = new Map(state.slots.snapshots.map((one) => [one.node, one.id]));
    this.empty.hidden = state.nodes.size > 0;
    this.scroller.hidden = this.legend.hidden = this.info.hidden = state.nodes.size === 0;
    this.table.element.hidden = state.nodes.size === 0;
    if (state.nodes.size) {
      const inner = width - (this.tree.rows * MIN_ROW > this.viewHeight ? 14 : 0);
      this.measure(inner);
      this.paint(inner);
      this.drawLegend();
      this.tell();
    }
    this.table.draw(state);
  }

  measure(width) {
    const { rows, levels } = this.tree;
    const row = Math.max(MIN_ROW, Math.min(ROW, this.viewHeight / rows));
    this.row = Math.min(row, MOST_PIXELS / rows);
    this.column = Math.max(3, Math.min(110, (width - 2) / levels));
    this.height = rows * this.row;
    this.boxes = this.tree.boxes.map((box) => ({
      ...box,
      x: box.level * this.column,
      y: box.row * this.row,
    }));
  }

  paint(width) {
    const context = sized(this.canvas, width, this.height);
    const { nodes } = this.state;
    const lit = this.litPath();
    const places = new Map(this.boxes.map((box) => [box.id, box]));
    const gap = this.column > 10 ? GAP : 1;
    context.font = `${this.font}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    for (const box of this.boxes) this.link(context, places.get(nodes.get(box.id).parent), box);
    for (const box of this.boxes) {
      const node = nodes.get(box.id);
      const paint = this.theme.blocks[node.refs > 1 ? "shared" : "cached"];
      const [w, h] = [this.column - gap, this.row - Math.min(GAP, this.row / 4)];
      const dim = lit && !lit.has(node.id);
      context.globalAlpha = dim ? 0.28 : 1;
      fillBox(context, dim ? { ...paint, hatch: "" } : paint, box.x, box.y, w, h);
      if (this.kept.has(node.id)) this.markSnapshot(context, box, w, h);
      if (!dim && w > 30 && h > 11) this.label(context, node, paint, box, w, h);
      context.globalAlpha = 1;
      if (node.pins) this.frame(context, box, w, h, this.theme.blocks.changed.colour);
      if (node.id === this.store.selection.node) this.frame(context, box, w, h, this.theme.ink);
    }
  }

  /** A bar at the node's end: the state there is kept. */
  markSnapshot(context, box, w, h) {
    const wide = Math.min(6, w / 3);
    fillBox(context, this.theme.parts.snapshots, box.x + w - wide, box.y, wide, h);
  }

  link(context, from, to) {
    if (!from || from.row === to.row) return;
    context.strokeStyle = this.theme.muted;
    context.lineWidth = 1;
    context.beginPath();
    const x = to.x - GAP / 2 - 0.5;
    context.moveTo(x, from.y + this.row / 2);
    context.lineTo(x, to.y + this.row / 2);
    context.lineTo(to.x, to.y + this.row / 2);
    context.stroke();
  }

  label(context, node, paint, box, w, h) {
    context.save();
    context.beginPath();
    context.rect(box.x + 2, box.y, w - 4, h);
    context.clip();
    const whose = box.level ? "" : adapterLabel(this.state, node.adapter);
    const text = whose + (node.text.replace(/\s+/g, " ").trim() || `node ${node.id}`);
    const long = Math.min(context.measureText(text).width + 6, w - 6);
    context.fillStyle = paint.colour;
    context.fillRect(box.x + 3, box.y + 2, long, h - 4);
    context.fillStyle = inkOn(paint.colour);
    context.fillText(text, box.x + 6, box.y + h / 2 + 0.5);
    context.restore();
  }

  frame(context, box, w, h, colour) {
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.strokeRect(box.x + 1, box.y + 1, w - 2, h - 2);
  }

  /** Nodes that the selection lights up: a node's path, or a sequence's cached blocks. */
  litPath() {
    const { selection } = this.store;
    if (selection.node !== null) return new Set(pathOf(this.state.nodes, selection.node));
    const sequence = this.state.sequences.get(selection.sequence);
    if (!sequence) return null;
    const table = new Set(sequence.table);
    const hits = [...this.state.nodes.values()].filter((node) => table.has(node.block));
    return new Set(hits.map((node) => node.id));
  }

  drawLegend() {
    const hybrid = this.state.header.slots.dummy >= 0;
    const sign = `${this.theme.name} ${hybrid}`;
    if (this.legendSign === sign) return;
    this.legendSign = sign;
    const items = [
      legendItem("in the cache alone", this.theme.blocks.cached),
      legendItem("used by a sequence too", this.theme.blocks.shared),
    ];
    if (hybrid) items.push(legendItem("state kept at its end", this.theme.parts.snapshots));
    this.legend.replaceChildren(...items);
  }

  tell() {
    const node = this.state.nodes.get(this.hovered ?? this.store.selection.node);
    const hint = "Each box is one full block of a prompt; a row is a prefix that can be reused.";
    say(this.info, node ? this.describe(node) : hint);
  }

  describe(node) {
    const ago = Math.max(0, this.state.header.t - node.used).toFixed(1);
    const users = node.refs - 1;
    return [
      `node ${node.id}`,
      `block ${node.block}`,
      `${counted(node.depth, "token")} deep`,
      users > 0 ? `used by ${counted(users, "sequence")}` : "cache alone",
      adapterWord(this.state, node.adapter),
      ...(this.kept.has(node.id) ? [`state kept as snapshot ${this.kept.get(node.id)}`] : []),
      `used ${ago} s ago`,
      JSON.stringify(node.text),
    ].join(" · ");
  }

  nodeAt(event) {
    const area = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    const hit = (this.boxes ?? []).find(
      (box) => x >= box.x && x < box.x + this.column && y >= box.y && y < box.y + this.row,
    );
    return hit ? hit.id : null;
  }

  hover(event) {
    this.setHover(this.nodeAt(event));
  }

  setHover(id) {
    if (id === this.hovered) return;
    this.hovered = id;
    if (this.state?.nodes.size) this.tell();
  }

  key(event) {
    const { selection } = this.store;
    if (event.key === "Escape") this.store.select({});
    else if (!this.boxes?.length || !event.key.startsWith("Arrow")) return;
    else this.moveTo(this.neighbour(selection.node, event.key) ?? selection.node);
    event.preventDefault();
    event.stopPropagation();
  }

  moveTo(id) {
    this.pick(id);
    const box = this.boxes.find((one) => one.id === id);
    const { scrollTop, clientHeight } = this.scroller;
    if (box.y < scrollTop || box.y + this.row > scrollTop + clientHeight) {
      this.scroller.scrollTop = box.y - clientHeight / 2;
    }
  }

  neighbour(id, key) {
    const at = this.boxes.find((box) => box.id === id);
    if (!at) return this.boxes[0].id;
    const [sideways, down] = {
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
    }[key];
    const ahead = this.boxes.filter((box) =>
      sideways
        ? (box.level - at.level) * sideways > 0
        : (box.row - at.row) * down > 0,
    );
    const far = (box) =>
      sideways
        ? Math.abs(box.level - at.level) + 100 * Math.abs(box.row - at.row)
        : Math.abs(box.row - at.row) * 1000 + Math.abs(box.level - at.level);
    return ahead.sort((a, b) => far(a) - far(b))[0]?.id;
  }

  pick(id) {
    if (id === null || id === undefined) this.store.select({});
    else this.store.select({ node: id, block: this.state.nodes.get(id)?.block ?? null });
  }
}
