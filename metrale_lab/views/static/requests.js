// Requests: who waits, runs or is parked, and how fast; a row of time for each.

import { counted, timeText } from "./layout.js";
import { legendItem, make, say } from "./paint.js";
import { REQUEST_WORDS } from "./reducer.js";

const ROWS = { normal: 8, projector: 6 };
const LIVE = new Set(["waiting", "prefilling", "running", "parked", "spilled"]);

export class Requests {
  static title = "Requests";
  static question = "Who waits, runs, is parked, and how fast?";

  constructor(store, options) {
    this.store = store;
    this.most = ROWS[options.size];
    this.lines = new Map();
    this.body = make("tbody");
    const heads = ["request", "state", "tokens", "first token", "per token", "time"];
    const head = make("tr", {}, ...heads.map((one) => make("th", { scope: "col", text: one })));
    this.table = make(
      "table",
      { class: "ml-requests" },
      make("caption", { class: "ml-hidden", text: "Requests, latest first" }),
      make("thead", {}, head),
      this.body,
    );
    this.legend = make("div", { class: "ml-legend" });
    this.info = make("p", { class: "ml-info" });
    this.empty = make("p", {
      class: "ml-empty",
      text: "No requests yet: lab.submit(…) or the prompt field sends one.",
    });
    this.element = make("div", {}, this.empty, this.table, this.legend, this.info);
  }

  draw(state, theme) {
    this.state = state;
    const rows = this.chosen(state);
    this.empty.hidden = rows.length > 0;
    this.table.hidden = this.legend.hidden = rows.length === 0;
    const start = Math.min(...rows.map((row) => row.arrived_s));
    const end = Math.max(state.header.t, start + 1e-3);
    const place = (t) => `${((100 * (t - start)) / (end - start)).toFixed(2)}%`;
    for (const [id, line] of this.lines) {
      if (!rows.some((row) => row.id === id)) {
        line.element.remove();
        this.lines.delete(id);
      }
    }
    rows.forEach((row, i) => {
      const line = this.line(row.id);
      if (this.body.children[i] !== line.element) {
        this.body.insertBefore(line.element, this.body.children[i] ?? null);
      }
      this.fill(line, row, theme, place, end);
    });
    this.drawLegend(theme);
    const { counts } = state.header;
    const more = counts.requests - rows.length;
    say(this.info, more > 0 ? `lab.frames.requests() has ${counted(more, "earlier request")} more.` : "");
  }

  /** The rows that fit: all that are alive, then the latest ended ones; latest first. */
  chosen(state) {
    const all = [...state.requests.values()];
    const order = (row) => (LIVE.has(row.state) ? 1e9 : 0) + row.id;
    all.sort((a, b) => order(b) - order(a));
    return all.slice(0, this.most).sort((a, b) => b.id - a.id);
  }

  line(id) {
    if (this.lines.has(id)) return this.lines.get(id);
    const cells = ["name", "state", "tokens", "first", "per", "time"].map(() => make("td"));
    const [name, state, tokens, first, per, time] = cells;
    const button = make("button", { type: "button", onclick: () => this.pick(id) });
    const text = make("div", { class: "ml-tail" });
    const bar = make("div", { class: "ml-gantt" });
    name.append(button);
    time.append(bar, text);
    const element = make("tr", {}, ...cells);
    const line = { element, button, state, tokens, first, per, bar, text };
    this.lines.set(id, line);
    return line;
  }

  fill(line, row, theme, place, end) {
    const chosen = row.sequence >= 0 && row.sequence === this.store.selection.sequence;
    say(line.button, row.name ? `${row.id} ${row.name}` : `${row.id}`);
    const alive = row.sequence >= 0 && this.state.sequences.has(row.sequence);
    line.button.title = alive
      ? `Light up the blocks of request ${row.id}`
      : `Request ${row.id} holds no blocks now`;
    line.button.setAttribute("aria-pressed", `${chosen}`);
    line.element.classList.toggle("ml-chosen", chosen);
    say(line.state, this.stateText(row, theme));
    line.state.title = row.error;
    const adapter = row.adapter ? `, adapter ${row.adapter}` : "";
    const cached = row.cached_tokens ? ` (${row.cached_tokens} reused)` : "";
    say(line.tokens, `${row.prompt_tokens}${cached} + ${row.output_tokens}/${row.max_tokens}${adapter}`);
    line.tokens.title = row.miss ? `first block that missed: ${row.miss.replaceAll("_", " ")}` : "";
    say(line.first, timeText(row.first_token_s - row.arrived_s));
    const per = (row.last_token_s - row.first_token_s) / (row.output_tokens - 1);
    say(line.per, row.output_tokens > 1 ? timeText(per) : "–");
    say(line.text, row.error || row.tail.replace(/\s+/g, " "));
    this.gantt(line.bar, row, theme, place, end);
  }

  stateText(row, theme) {
    const mark = theme.requests[row.state].mark;
    const why = row.state === "waiting" && row.blocked_by ? `, needs ${row.blocked_by}` : "";
    const how = row.finish_reason && row.finish_reason !== "stop" ? `, ${row.finish_reason}` : "";
    const lost = row.preemptions ? `, preempted ${row.preemptions}×` : "";
    return `${mark} ${row.state}${why}${how}${lost}`;
  }

  gantt(bar, row, theme, place, end) {
    const parts = row.spans
      .filter((span) => LIVE.has(span.state))
      .map((span) => {
        const until = Number.isNaN(span.end) ? end : span.end;
        const part = make("i", { title: `${span.state} ${timeText(until - span.start)}` });
        part.className = `ml-span ml-${span.state}`;
        part.style.left = place(span.start);
        part.style.width = `max(2px, calc(${place(until)} - ${place(span.start)}))`;
        part.style.backgroundColor = theme.requests[span.state].colour;
        return part;
      });
    if (Number.isFinite(row.first_token_s)) {
      const first = make("i", { class: "ml-first", title: "first token" });
      first.style.left = place(row.first_token_s);
      parts.push(first);
    }
    bar.replaceChildren(...parts);
  }

  drawLegend(theme) {
    if (this.legendTheme === theme.name) return;
    this.legendTheme = theme.name;
    const words = REQUEST_WORDS.filter((word) => LIVE.has(word) && word !== "spilled");
    this.legend.replaceChildren(
      ...words.map((word) => legendItem(word, theme.requests[word])),
      make("span", { class: "ml-key" }, make("i", { class: "ml-first" }), "first token"),
    );
  }

  pick(id) {
    const sequence = this.state.requests.get(id)?.sequence ?? -1;
    const again = sequence === this.store.selection.sequence;
    const alive = this.state.sequences.has(sequence);
    this.store.select(again || !alive ? {} : { sequence });
  }
}
