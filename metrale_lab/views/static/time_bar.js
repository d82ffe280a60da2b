// The time bar: hold, live, step, scrub; and how full the pool was over the ring.

import { momentText } from "./layout.js";
import { make, say, sized } from "./paint.js";

const HEIGHT = 26;

export class TimeBar {
  constructor(store) {
    this.store = store;
    const button = (text, title, onclick) =>
      make("button", { type: "button", text, title, onclick });
    const arrow = (text, label, by) => {
      const onclick = () => store.hold(store.index + by);
      return make("button", { type: "button", text, "aria-label": label, title: label, onclick });
    };
    this.hold = button("Hold", "Hold the view at this moment", () => store.hold());
    this.live = button("Live", "Follow the engine", () => store.goLive());
    this.back = arrow("‹", "One frame back", -1);
    this.forward = arrow("›", "One frame forward", 1);
    this.slider = make("input", {
      type: "range",
      min: "0",
      max: "0",
      value: "0",
      "aria-label": "Moment that is shown",
      oninput: () => store.hold(Number(this.slider.value)),
    });
    this.strip = make("canvas", { class: "ml-strip", "aria-hidden": "true" });
    this.track = make("div", { class: "ml-track" }, this.strip, this.slider);
    this.text = make("span", { class: "ml-moment" });
    this.element = make(
      "div",
      { class: "ml-time", role: "group", "aria-label": "Time" },
      this.hold,
      this.live,
      this.back,
      this.track,
      this.forward,
      this.text,
    );
  }

  draw(theme) {
    const { store } = this;
    const { frames } = store.ring;
    const recorded = store.post === null;
    this.live.hidden = recorded;
    this.hold.hidden = recorded;
    this.hold.disabled = frames.length === 0;
    this.hold.setAttribute("aria-pressed", `${store.held}`);
    this.live.setAttribute("aria-pressed", `${!store.held}`);
    this.slider.max = `${Math.max(frames.length - 1, 0)}`;
    this.slider.value = `${store.index}`;
    this.back.disabled = store.index <= 0;
    this.forward.disabled = store.index >= frames.length - 1;
    const words = this.words();
    say(this.text, words);
    this.slider.setAttribute("aria-valuetext", words);
    this.drawStrip(frames, theme);
  }

  words() {
    const shown = this.store.state?.header.step;
    const last = this.store.ring.live?.header.step ?? shown;
    return momentText(shown, last, this.store.held, this.store.post === null);
  }

  /** Used blocks as an area; a break in it is where frames are missing. */
  drawStrip(frames, theme) {
    const width = Math.max(this.track.clientWidth, 20);
    const context = sized(this.strip, width, HEIGHT);
    if (frames.length < 2) return;
    const x = (i) => 8 + (i / (frames.length - 1)) * (width - 16);
    const every = Math.max(1, Math.floor(frames.length / width));
    context.fillStyle = theme.blocks.private.colour;
    context.globalAlpha = 0.3;
    for (let i = 0; i < frames.length; i += every) {
      const { counts } = frames[i].header;
      const cached = counts.cached;
      const used = counts.private + counts.shared + counts.reserved + counts.held + cached;
      const full = (used / Math.max(used + counts.free, 1)) * (HEIGHT - 4);
      const w = Math.max(x(i + every) - x(i), 0.6);
      context.fillRect(x(i), HEIGHT - full, w, full);
    }
    context.globalAlpha = 1;
    context.fillStyle = theme.bad;
    frames.forEach((frame, i) => frame.gap && context.fillRect(x(i) - 1, 0, 2, HEIGHT));
  }
}
