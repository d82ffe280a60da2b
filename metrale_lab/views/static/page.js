// The page of one widget: top line, time bar, notices, panels. Drawing happens once per animation
// frame at most, and only for panels that are open and on the screen.

import { Adapters } from "./adapters.js";
import { BlockMap } from "./block_map.js";
import { Controls, ratesText } from "./controls.js";
import { FeedTimeline } from "./feed_timeline.js";
import { Invariants } from "./invariants.js";
import { Memory } from "./memory.js";
import { noticeOf, statusOf } from "./notices.js";
import { isDark, make, say, watchTheme } from "./paint.js";
import { PrefixTree } from "./prefix_tree.js";
import { Reclaims } from "./reclaims.js";
import { Requests } from "./requests.js";
import { Slots } from "./slots.js";
import { TimeBar } from "./time_bar.js";

const PANELS = {
  block_map: BlockMap,
  requests: Requests,
  feed_timeline: FeedTimeline,
  prefix_tree: PrefixTree,
  memory: Memory,
  reclaims: Reclaims,
  slots: Slots,
  adapters: Adapters,
  invariants: Invariants,
  controls: Controls,
};

const RELOADED =
  "This page was loaded after the panel's cell ran: run the cell again before you freeze it.";

export class Page {
  constructor(root, store, options) {
    this.root = root;
    this.store = store;
    this.options = { size: "normal", folded: [], ...options };
    this.name = make("strong");
    this.status = make("span", { class: "ml-status" });
    this.counts = make("span", { class: "ml-counts" });
    this.freeze = make("button", {
      type: "button",
      text: "Freeze for saving",
      title: "Put a picture and its text in this panel's place, so that the saved file shows it",
      onclick: () => this.options.freeze(),
    });
    this.freeze.hidden = !options.freeze;
    this.time = new TimeBar(store);
    this.notice = make("p", { class: "ml-notice", role: "status" });
    this.errors = make("div", { class: "ml-errors", role: "alert" });
    this.waiting = make("p", {
      class: "ml-empty",
      text: "Waiting for the engine's first frame.",
    });
    this.cards = this.makeCards();
    root.classList.add("ml-root");
    root.dataset.size = this.options.size;
    // Jupyter matches its keys with the focused element first, and only then looks around it.
    root.addEventListener("focusin", (event) =>
      event.target.setAttribute("data-lm-suppress-shortcuts", "true"),
    );
    root.replaceChildren(this.top(), this.time.element, this.notice, this.errors, this.waiting);
    root.append(this.grid());
    this.start();
  }

  top() {
    return make(
      "header",
      { class: "ml-top" },
      this.name,
      this.status,
      this.counts,
      make("span", { class: "ml-space" }),
      this.freeze,
    );
  }

  makeCards() {
    const { panels, folded, size } = this.options;
    const alone = panels.length === 1 && folded.length === 0;
    const names = [...panels, ...folded].filter(
      (name) => alone || name !== "controls" || this.store.post !== null,
    );
    return names.map((name) => {
      const Panel = PANELS[name];
      const panel = new Panel(this.store, { size });
      const body = make("div", { class: "ml-body" }, panel.element);
      const head = make(
        "summary",
        {},
        make("span", { class: "ml-title", text: Panel.title }),
        make("span", { class: "ml-question", text: Panel.question }),
      );
      const element = make("details", { class: `ml-card ml-card-${name}` }, head, body);
      element.open = !folded.includes(name);
      element.addEventListener("toggle", () => this.later());
      if (alone || name === "controls") element.classList.add("ml-wide");
      return { name, panel, body, element, visible: true };
    });
  }

  grid() {
    return make("div", { class: "ml-grid" }, ...this.cards.map((card) => card.element));
  }

  start() {
    const redraw = () => this.later();
    this.stops = [
      this.store.listen(redraw),
      watchTheme(() => {
        this.dark = undefined;
        redraw();
      }),
    ];
    const resize = new ResizeObserver(redraw);
    resize.observe(this.root);
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const card = this.cards.find((one) => one.element === entry.target);
        if (card) card.visible = entry.isIntersecting;
      }
      redraw();
    });
    for (const card of this.cards) seen.observe(card.element);
    this.stops.push(() => resize.disconnect(), () => seen.disconnect());
    this.later();
  }

  stop() {
    for (const stop of this.stops) stop();
    cancelAnimationFrame(this.pending);
  }

  later() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      try {
        this.draw();
      } catch (error) {
        this.showErrors([`page: ${error.message}`]);
        console.error(error);
      }
    });
  }

  draw() {
    const dark = isDark();
    const theme = this.store.palette[dark ? "dark" : "light"];
    if (dark !== this.dark) this.applyTheme(theme, dark);
    const { state } = this.store;
    this.drawTop(state);
    this.time.draw(theme);
    this.waiting.hidden = state !== null;
    if (state) for (const card of this.cards) this.drawCard(card, state, theme);
    this.showErrors([...(state?.header.errors ?? []), ...this.store.trouble]);
  }

  drawCard(card, state, theme) {
    if (!card.element.open || !card.visible) return;
    const width = Math.floor(card.body.clientWidth);
    if (width < 40) return;
    try {
      card.panel.draw(state, theme, width);
    } catch (error) {
      this.store.trouble = [`panel ${card.name}: ${error.message}`];
      console.error(error);
    }
  }

  drawTop(state) {
    const { store } = this;
    const header = store.ring.live?.header ?? state?.header;
    const [word, text] = statusOf(store, header);
    say(this.name, header?.name || "Metrale Lab");
    this.root.setAttribute("aria-label", `Metrale Lab ${header?.name ?? ""}`);
    this.status.dataset.word = word;
    say(this.status, text);
    say(this.counts, header ? ratesText(header.stats, false) : "");
    this.freeze.disabled = store.gone || this.options.reloaded === true;
    const reloaded = this.options.reloaded ? RELOADED : "";
    say(this.notice, `${noticeOf(store, state)} ${reloaded}`.trim());
    this.notice.hidden = this.notice.textContent === "";
  }

  showErrors(texts) {
    const sign = texts.join("\n");
    if (sign === this.shownErrors) return;
    this.shownErrors = sign;
    const dismiss = make("button", {
      type: "button",
      text: "Dismiss",
      onclick: () => (this.errors.hidden = true),
    });
    const lines = texts.map((text) => make("div", { text: `✗ ${text}` }));
    this.errors.replaceChildren(dismiss, ...lines);
    this.errors.hidden = texts.length === 0;
  }

  applyTheme(theme, dark) {
    this.dark = dark;
    this.root.dataset.theme = theme.name;
    for (const name of ["background", "panel", "ink", "muted", "grid", "good", "bad"]) {
      this.root.style.setProperty(`--ml-${name}`, theme[name]);
    }
    this.root.style.setProperty("--ml-accent", theme.blocks.private.colour);
  }
}
