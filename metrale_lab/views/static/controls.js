// Controls: the engine (pause, tick, resume, slow motion), a prompt to submit, pool pressure.

import { make, say } from "./paint.js";

const SPEEDS = [
  ["full speed", null],
  ["5 ticks a second", 5],
  ["2 ticks a second", 2],
  ["1 tick a second", 1],
];

const PROMPT = "The old man told the boy";

export class Controls {
  static title = "Controls";
  static question = "";

  constructor(store) {
    this.store = store;
    const button = (text, onclick) => make("button", { type: "button", text, onclick });
    this.pause = button("Pause engine", () => store.command("pause"));
    this.tick = button("Tick", () => store.command("tick"));
    this.resume = button("Resume engine", () => store.command("resume"));
    this.speed = make(
      "select",
      { onchange: () => this.setSpeed() },
      ...SPEEDS.map(([word, value]) => make("option", { text: word, value: `${value}` })),
    );
    this.held = make("input", { type: "number", min: "0", value: "0", class: "ml-short" });
    this.prompt = make("input", { type: "text", placeholder: PROMPT, size: "28" });
    this.tokens = make("input", { type: "number", min: "1", value: "48", class: "ml-short" });
    const engine = make("fieldset", {}, make("legend", { text: "engine" }), this.pause, this.tick);
    engine.append(this.resume, make("label", {}, "speed ", this.speed));
    const send = make("form", { class: "ml-form", onsubmit: (event) => this.submit(event) });
    send.append(
      make("label", {}, "prompt ", this.prompt),
      make("label", {}, "max tokens ", this.tokens),
      make("button", { type: "submit", text: "Submit" }),
    );
    const press = make("form", { class: "ml-form", onsubmit: (event) => this.hold(event) });
    press.append(
      make("label", {}, "blocks ", this.held),
      make("button", { type: "submit", text: "Hold blocks" }),
      button("Release", () => this.release()),
    );
    const box = (word, form) => make("fieldset", {}, make("legend", { text: word }), form);
    this.buttons = make(
      "div",
      { class: "ml-controls" },
      engine,
      box("request", send),
      box("pool pressure", press),
    );
    this.rates = make("p", { class: "ml-info" });
    this.recorded = make("p", {
      class: "ml-empty",
      text: "A recorded run: the slider moves through it; the engine itself is closed.",
    });
    this.element = make("div", {}, this.recorded, this.buttons, this.rates);
  }

  draw(state) {
    const { engine, stats } = this.store.ring.live?.header ?? state.header;
    const live = this.store.post !== null && !this.store.gone && !engine.closed;
    this.recorded.hidden = live;
    this.buttons.hidden = !live;
    say(
      this.recorded,
      this.store.post === null || engine.closed
        ? "A recorded run: the slider moves through it; the engine itself is closed."
        : "The kernel is gone: what it last said can still be looked at.",
    );
    this.pause.disabled = engine.paused;
    this.tick.disabled = this.resume.disabled = !engine.paused;
    if (document.activeElement !== this.speed) this.speed.value = `${engine.pace ?? null}`;
    if (document.activeElement !== this.held) {
      if (engine.held !== this.shownHeld) this.held.value = `${engine.held}`;
      this.shownHeld = engine.held;
    }
    say(this.rates, ratesText(stats));
  }

  setSpeed() {
    const value = this.speed.value === "null" ? null : Number(this.speed.value);
    this.store.command("pace", { ticks_per_s: value });
  }

  submit(event) {
    event.preventDefault();
    const prompt = this.prompt.value || this.prompt.placeholder;
    this.store.command("submit", { prompt, max_tokens: Number(this.tokens.value) || 48 });
  }

  hold(event) {
    event.preventDefault();
    this.store.command("hold_blocks", { blocks: Number(this.held.value) || 0 });
  }

  release() {
    this.held.value = "0";
    this.store.command("hold_blocks", { blocks: 0 });
  }
}

/** Speed in words, of what `lab.stats()` says; with what recording costs when asked. */
export function ratesText(stats, cost = true) {
  const parts = [];
  if (stats.tokens_per_s !== undefined) parts.push(`${stats.tokens_per_s.toFixed(1)} tokens/s`);
  if (stats.hit_rate !== undefined)
    parts.push(`${Math.round(100 * stats.hit_rate)} % of prompt tokens reused`);
  if (cost && stats.recording_share !== undefined) {
    const share = 100 * stats.recording_share;
    parts.push(`recording costs ${share.toFixed(share < 1 ? 2 : 1)} %`);
    if (stats.tokens_per_s !== undefined) {
      const without = stats.tokens_per_s / Math.max(1 - stats.recording_share, 0.01);
      parts.push(`${without.toFixed(1)} tokens/s without it`);
    }
  }
  return parts.join(" · ");
}
