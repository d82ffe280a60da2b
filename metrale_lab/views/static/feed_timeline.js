// The feed timeline: what host and device did at the same time, with the true event times.

import { counted, niceStep, timeline, timeText } from "./layout.js";
import { fillBox, inkOn, legendItem, make, say, sized, TextTable } from "./paint.js";

const SHOWN = [8, 16, 32, 96];
const LANE = { normal: 34, projector: 46 };
const LEFT = 54;
const AXIS = 20;
const WORDS = ["plan", "launch", "wait", "settle", "forward", "argmax+copy", "discarded", "bubble"];

export class FeedTimeline {
  static title = "Feed timeline";
  static question = "What overlaps with what?";

  constructor(store, options) {
    this.store = store;
    this.lane = LANE[options.size];
    this.count = 16;
    this.canvas = make("canvas", {
      class: "ml-canvas",
      tabindex: "0",
      role: "img",
      "aria-label": "Feed timeline: host lane above device lane; plus and minus change the zoom",
      onpointermove: (event) => this.hover(event),
      onpointerleave: () => this.tell(null),
      onkeydown: (event) => this.key(event),
    });
    this.legend = make("div", { class: "ml-legend" });
    this.info = make("p", { class: "ml-info", "aria-live": "polite" });
    this.empty = make("p", {
      class: "ml-empty",
      text: "No decode step yet: the first one comes after a prompt has been prefilled.",
    });
    this.table = new TextTable(
      "Decode steps, latest last",
      ["ticket", "tick", "rows", "fed", "launch", "device", "gap before", "lead", "discarded"],
      (state) => this.rows(state),
    );
    const zoom = make("div", { class: "ml-zoom" });
    for (const [sign, by] of [["−", 1], ["+", -1]]) {
      const label = by > 0 ? "Show more steps" : "Show fewer steps";
      const onclick = () => this.zoom(by);
      zoom.append(make("button", { type: "button", "aria-label": label, text: sign, onclick }));
    }
    this.element = make(
      "div",
      { class: "ml-feed" },
      zoom,
      this.empty,
      this.canvas,
      this.legend,
      this.info,
      this.table.element,
    );
  }

  draw(state, theme, width) {
    this.state = state;
    this.theme = theme;
    this.width = width;
    this.empty.hidden = state.steps.length > 0;
    this.canvas.hidden = this.legend.hidden = this.info.hidden = state.steps.length === 0;
    this.table.element.hidden = state.steps.length === 0;
    if (state.steps.length) {
      this.paint();
      this.drawLegend();
      this.tell(null);
    }
    this.table.draw(state);
  }

  paint() {
    const { lane, theme, width } = this;
    const line = timeline(this.state.steps, this.state.ticks, this.state.flying, this.count);
    this.line = line;
    const context = sized(this.canvas, width, 2 * lane + 12 + AXIS);
    const scale = (width - LEFT - 4) / Math.max(line.end - line.start, 1e-6);
    this.x = (t) => LEFT + (t - line.start) * scale;
    context.font = `${Math.round(this.lane * 0.35)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.fillStyle = theme.muted;
    context.fillText("host", 0, lane / 2);
    context.fillText("device", 0, lane * 1.5 + 8);
    context.fillStyle = theme.panel;
    context.fillRect(LEFT, 0, width - LEFT, lane);
    context.fillRect(LEFT, lane + 8, width - LEFT, lane);
    this.drawAxis(context);
    this.boxes = [];
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, 2 * lane + 8);
    context.clip();
    for (const one of line.host) this.bar(context, one, 0);
    for (const one of line.device) this.bar(context, one, lane + 8);
    this.drawLaunchLines(context);
    context.restore();
  }

  bar(context, one, top) {
    const x = this.x(one.from);
    const w = Math.max(1, this.x(one.to) - x);
    const inset = { wait: 9, plan: 4, bubble: 11 }[one.word] ?? 2;
    const [y, h] = [top + inset, this.lane - 2 * inset];
    fillBox(context, this.theme.lanes[one.word], x, y, w, h);
    this.boxes.push({ ...one, x, y: top, w, h: this.lane });
    if (one.word === "forward" && w > 26) {
      context.fillStyle = inkOn(this.theme.lanes.forward.colour);
      context.fillText(`${one.step.ticket}`, x + 5, top + this.lane / 2 + 0.5);
    }
  }

  /** A thin line from each launch to the moment the device began it: how far the host is ahead. */
  drawLaunchLines(context) {
    context.strokeStyle = this.theme.ink;
    context.globalAlpha = 0.5;
    context.lineWidth = 1;
    context.beginPath();
    for (const step of this.state.steps.slice(-this.count)) {
      context.moveTo(this.x(step.launched_s), this.lane - 2);
      context.lineTo(this.x(step.device_start_s), this.lane + 10);
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  drawAxis(context) {
    const { start, end } = this.line;
    const step = niceStep(end - start, this.width / 110);
    const y = 2 * this.lane + 12;
    context.strokeStyle = this.theme.grid;
    context.fillStyle = this.theme.muted;
    for (let t = 0; t <= end - start + 1e-9; t += step) {
      const x = Math.round(this.x(start + t)) + 0.5;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, y);
      context.stroke();
      if (x < this.width - 50) context.fillText(t ? timeText(t) : "0", x + 3, y + 7);
    }
  }

  drawLegend() {
    if (this.legendTheme === this.theme.name) return;
    this.legendTheme = this.theme.name;
    this.legend.replaceChildren(...WORDS.map((word) => legendItem(word, this.theme.lanes[word])));
  }

  hover(event) {
    const area = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    const hits = (this.boxes ?? []).filter(
      (box) => x >= box.x - 1 && x <= box.x + box.w + 1 && y >= box.y && y <= box.y + box.h,
    );
    this.tell(hits.at(-1) ?? null);
  }

  tell(one) {
    const overlap = this.overlap();
    say(this.info, one ? this.describe(one) : overlap);
  }

  describe({ word, from, to, step }) {
    const parts = [word, timeText(to - from)];
    if (step) {
      parts.push(`step ${step.ticket}`, `${counted(step.rows, "row")}, ${step.fed} fed from the device`);
      if (step.discarded_rows) parts.push(`${counted(step.discarded_rows, "row")} discarded`);
      if (step.captured) parts.push("captured");
      if (step.ring_slot >= 0) parts.push(`ring cell ${step.ring_slot}`);
    }
    return parts.join(" · ");
  }

  /** The picture in one sentence: how much the device idles, how far the host runs ahead. */
  overlap() {
    const steps = this.state.steps.slice(-this.count);
    const busy = sum(steps.map((step) => step.ready_s - step.device_start_s));
    const bubbles = this.line.device.filter((one) => one.word === "bubble");
    const idle = sum(bubbles.map((one) => one.to - one.from));
    const ahead = steps.filter((step, i) => i && step.launch_s < steps[i - 1].settled_s).length;
    const share = Math.round((100 * idle) / Math.max(busy + idle, 1e-9));
    return (
      `Last ${counted(steps.length, "step")}: the device idled ${share} % (${timeText(idle)}) · ` +
      `${ahead} launched before the step before was settled · ${this.state.flying.length} in flight`
    );
  }

  rows(state) {
    const steps = state.steps.slice(-this.count);
    return steps.map((step, i) => {
      const before = steps[i - 1];
      const lead = before ? before.settled_s - step.launch_s : NaN;
      return [
        step.ticket,
        step.step,
        step.rows,
        step.fed,
        timeText(step.launched_s - step.launch_s),
        timeText(step.ready_s - step.device_start_s),
        before ? timeText(Math.max(0, step.device_start_s - before.ready_s)) : "–",
        lead > 0 ? timeText(lead) : "–",
        step.discarded_rows,
      ];
    });
  }

  key(event) {
    if (event.key === "+") this.zoom(-1);
    else if (event.key === "-") this.zoom(1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  zoom(by) {
    const at = Math.max(0, Math.min(SHOWN.length - 1, SHOWN.indexOf(this.count) + by));
    this.count = SHOWN[at];
    if (this.state) this.draw(this.state, this.theme, this.width);
  }
}

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
