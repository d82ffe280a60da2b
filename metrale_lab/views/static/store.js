// What all panels of one lab share in the browser: the ring, the moment that is shown, the
// selection, and the way to the kernel. The widgets' models feed it; panels listen.

import { applyFrame } from "./reducer.js";
import { Ring } from "./ring.js";
import { frameOf, splitFrames, WIRE_VERSION } from "./wire.js";

const ANSWER_WITHIN_MS = 500;
const REPEAT_AFTER_MS = 2000;
const LAST_REPEAT_MS = 32_000;
const PAGE = Math.random().toString(36).slice(2);

export class Store {
  /** `post(message)` sends to the kernel; null for a recorded run. */
  constructor(palette, post = null) {
    this.palette = palette;
    this.post = post;
    this.ring = new Ring(post ? 60 : Infinity);
    this.heldState = null; // what a held view shows; null = live
    this.heldSeq = null;
    this.still = false; // held by `goto`, which the kernel's pictures follow until "Live"
    this.selection = { sequence: null, block: null, node: null };
    this.listeners = new Set();
    this.waiting = new Map(); // command id -> its word, until the kernel answers
    this.slow = false; // a command has waited longer than it should
    this.gone = false; // the kernel is no longer there
    this.trouble = []; // errors of the panels themselves
    this.commands = 0;
    this.askedAt = -Infinity;
  }

  /** The state to draw, or null before the first frame. */
  get state() {
    return this.heldState ?? this.ring.live;
  }

  get held() {
    return this.heldState !== null;
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  notify() {
    for (const listener of this.listeners) listener();
  }

  load(view) {
    if (view && view.byteLength) for (const frame of splitFrames(view)) this.push(frame);
  }

  receive(header, buffers) {
    this.heard = true;
    if (header.ending) this.lose();
    if (header.arrays) this.push(frameOf(header, buffers[0]));
  }

  push(frame) {
    if (frame.header.v !== WIRE_VERSION) {
      this.fail(`frames have version ${frame.header.v}, this page reads ${WIRE_VERSION}`);
      return;
    }
    if (this.ring.push(frame) === "lost") this.askForKey();
    this.answered(frame.header.acks);
    this.notify();
  }

  askForKey() {
    if (!this.post || performance.now() - this.askedAt < 1000) return;
    this.askedAt = performance.now();
    this.send({ ask: "key" });
  }

  fail(text) {
    if (!this.trouble.includes(text)) this.trouble.push(text);
    this.notify();
  }

  // The shown moment

  hold(index = this.ring.frames.length - 1) {
    if (!this.ring.frames.length) return;
    const at = Math.max(0, Math.min(index, this.ring.frames.length - 1));
    this.heldState = this.ring.stateAt(at);
    this.heldSeq = this.ring.frames[at].header.seq;
    this.notify();
  }

  goLive() {
    this.heldState = this.heldSeq = null;
    if (this.still && this.post) this.send({ ask: "live" });
    this.still = false;
    this.notify();
  }

  /** Holds all views at one frame that came by itself (`goto`). */
  holdStill(view) {
    if (!view || !view.byteLength) return;
    const [frame] = splitFrames(view);
    this.still = true;
    this.heldState = applyFrame(null, frame);
    const at = this.ring.find({ step: frame.header.step });
    this.heldSeq = at < 0 ? -1 : this.ring.frames[at].header.seq;
    this.notify();
  }

  /** Index of the shown frame in the ring. */
  get index() {
    const { frames } = this.ring;
    if (this.heldSeq === null) return frames.length - 1;
    const at = frames.findIndex((frame) => frame.header.seq >= this.heldSeq);
    return at < 0 ? frames.length - 1 : at;
  }

  select(selection) {
    this.selection = { sequence: null, block: null, node: null, ...selection };
    this.notify();
  }

  // The way to the kernel

  command(word, message = {}) {
    if (!this.post || this.gone) return;
    const id = `${PAGE}-${(this.commands += 1)}`;
    this.waiting.set(id, word);
    this.repeat({ command: word, id, ...message }, () => this.waiting.has(id));
    setTimeout(() => {
      if (!this.waiting.has(id)) return;
      this.slow = true;
      this.notify();
    }, ANSWER_WITHIN_MS);
    this.notify();
  }

  /** Says that a view is there, until a frame answers. */
  hello(view) {
    this.heard = false;
    this.repeat({ hello: view }, () => !this.heard);
  }

  /**
   * Sends a message, and again while `unanswered()`: a message that is sent while the page is still
   * connecting may be lost. The kernel carries out each id once.
   */
  repeat(message, unanswered, delay = REPEAT_AFTER_MS) {
    this.send(message);
    if (delay > LAST_REPEAT_MS) return;
    setTimeout(() => {
      if (!this.gone && unanswered()) this.repeat(message, unanswered, 2 * delay);
    }, delay);
  }

  answered(acks) {
    for (const id of acks) this.waiting.delete(id);
    if (!this.waiting.size) this.slow = false;
  }

  send(message) {
    try {
      this.post(message);
    } catch (error) {
      this.gone = true;
      this.fail(`the kernel cannot be reached: ${error.message}`);
    }
  }

  lose() {
    this.gone = true;
    this.waiting.clear();
    this.slow = false;
    this.notify();
  }
}

const STORES = Symbol.for("metrale-lab stores");

/** The one store of a hub model; every module of this page finds the same. */
export function storeOf(hub) {
  const stores = (globalThis[STORES] ??= new WeakMap());
  if (stores.has(hub)) return stores.get(hub);
  const live = hub.get("mode") === "live";
  const store = new Store(hub.get("palette"), live ? (message) => hub.send(message) : null);
  stores.set(hub, store);
  store.load(hub.get("recorded"));
  if (live) store.ring.joinStream();
  store.holdStill(hub.get("still"));
  hub.on("msg:custom", (header, buffers) => store.receive(header, buffers));
  hub.on("change:still", () => store.holdStill(hub.get("still")));
  hub.on("comm_live_update", () => hub.comm_live === false && store.lose());
  hub.once("comm:close", () => store.lose());
  hub.once("destroy", () => store.lose());
  return store;
}
