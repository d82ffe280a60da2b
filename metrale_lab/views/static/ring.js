// The frames of the last minute. Plain; no browser needed.

import { applyFrame } from "./reducer.js";

/** The last minute of frames, and the state at any of them. */
export class Ring {
  constructor(seconds = 60) {
    this.seconds = seconds;
    this.frames = [];
    this.live = null;
    this.lost = 0; // frames that never came
    this.lastSeq = null;
    this.needsKey = true; // deltas have nothing to stand on
    this.gapAhead = false; // frames were lost and no keyframe has come since
  }

  /** What comes next belongs to another stream: its first keyframe goes on from here. */
  joinStream() {
    this.lastSeq = null;
    this.needsKey = true;
  }

  /** Takes a frame; returns "key", "delta", "lost" (needs a keyframe) or "old". */
  push(frame) {
    const { seq, kind, t } = frame.header;
    if (this.lastSeq !== null && seq <= this.lastSeq && kind !== "key") return "old";
    const missing = this.lastSeq === null ? 0 : Math.max(0, seq - this.lastSeq - 1);
    this.lastSeq = seq;
    this.lost += missing;
    if (missing) this.gapAhead = this.needsKey = true;
    if (kind === "key") this.needsKey = false;
    else if (this.needsKey) return "lost";
    frame.gap = this.gapAhead;
    this.gapAhead = false;
    this.frames.push(frame);
    this.live = applyFrame(this.live, frame);
    this.prune(t);
    return kind;
  }

  /** Drops what is older than the ring is long; the first frame stays a keyframe. */
  prune(now) {
    let keep = 0;
    for (let i = 0; i < this.frames.length; i++) {
      if (this.frames[i].header.t >= now - this.seconds) break;
      if (this.frames[i].header.kind === "key") keep = i;
    }
    this.frames.splice(0, keep);
  }

  /** The state at frame `index`, replayed from the keyframe before it. */
  stateAt(index) {
    let key = Math.min(index, this.frames.length - 1);
    while (key > 0 && this.frames[key].header.kind !== "key") key--;
    let state = null;
    if (key > 0) state = { blocks: this.blocksBefore(key) };
    for (let i = key; i <= index && i < this.frames.length; i++) {
      state = applyFrame(state, this.frames[i]);
    }
    return state;
  }

  blocksBefore(key) {
    let start = key - 1;
    while (start > 0 && this.frames[start].header.kind !== "key") start--;
    let state = null;
    for (let i = start; i < key; i++) state = applyFrame(state, this.frames[i]);
    return state ? state.blocks : new Uint8Array(0);
  }

  /** The last frame that is not after an event number or a tick; -1 when all are later. */
  find({ event = null, step = null }) {
    const passes = ({ header }) =>
      event !== null ? header.event <= event : header.step <= step;
    for (let i = this.frames.length - 1; i >= 0; i--) if (passes(this.frames[i])) return i;
    return -1;
  }
}
