// What all panels of one lab share in the browser: the ring, the moment that is shown, the
// selection, and the way to the kernel. The widgets' models feed it; panels listen.

import { Ring, applyFrame } from "./reducer.js";
import { frameOf, splitFrames, WIRE_VERSION } from "./wire.js";

const ANSWER_WITHIN_MS = 500;

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
    if (header.arrays) this.push(frameOf(header, buffers[0]));
  }

  push(frame) {
    if (frame.header.v !== WIRE_VERSION) {
      this.fail(`frames have version ${frame.header.v}, this page reads ${WIRE_VERSION}`);
      return;
    }
    if (this.ring.push(frame) === "lost") this.askForKey();
    this.answered(frame.header.ack);
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
    const id = (this.commands += 1);
    this.waiting.set(id, word);
    this.send({ command: word, id: this.base() + id, ...message });
    setTimeout(() => {
      if (!this.waiting.has(id)) return;
      this.slow = true;
      this.notify();
    }, ANSWER_WITHIN_MS);
    this.notify();
  }

  // Several pages may send to one kernel: ids go on from the last one that it answered.
  base() {
    this.firstId ??= this.ring.live?.header.ack ?? 0;
    return this.firstId;
  }

  answered(ack) {
    for (const id of [...this.waiting.keys()]) {
      if (this.base() + id <= ack) this.waiting.delete(id);
    }
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
