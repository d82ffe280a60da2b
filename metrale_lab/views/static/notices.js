// How the engine stands, and what a reader must know about the picture, in words.

import { counted } from "./layout.js";

/** How the engine stands: a word for the style, and a text. */
export function statusOf(store, header) {
  if (!header) return ["none", "no engine yet"];
  const { engine, counts } = header;
  if (store.post === null) return ["recorded", "recorded run"];
  if (store.gone) return ["gone", "kernel gone"];
  if (engine.closed) return ["closed", "engine closed"];
  const pauser = engine.paused_by === "panel" ? "paused here" : "paused by code";
  if (engine.paused) return ["paused", pauser];
  const alive = (counts.running ?? 0) + (counts.prefilling ?? 0);
  const queued = (counts.waiting ?? 0) + (counts.parked ?? 0);
  if (!alive && !queued) return ["idle", counts.requests ? "idle" : "idle, no requests yet"];
  return ["running", `${alive} running${queued ? `, ${queued} waiting` : ""}`];
}

/** What a reader must know about what is shown, in words; "" = nothing. */
export function noticeOf(store, state) {
  const parts = [];
  if (store.slow) {
    const words = [...new Set(store.waiting.values())].map((one) => WORDS[one] ?? one);
    parts.push(`The kernel is busy with a cell: controls wait for the cell (${words.join(", ")}).`);
  }
  if (store.gone) parts.push("The kernel is gone; the last minute can still be scrubbed.");
  if (store.ring.gapAhead) parts.push("Frames were lost; the next full one mends the picture.");
  if (state?.header.dropped) {
    parts.push(`Overwritten: ${counted(state.header.dropped, "old event")} (record_events).`);
  }
  for (const said of state?.header.said ?? []) parts.push(`Too much for one frame: ${said}.`);
  return parts.join(" ");
}

const WORDS = {
  pause: "pause",
  tick: "tick",
  resume: "resume",
  pace: "speed",
  submit: "prompt",
  hold_blocks: "hold blocks",
};
