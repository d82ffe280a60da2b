// From frames to the state that panels draw. Plain functions; no browser needed.

import { arrayOf, rowOf, textsOf } from "./wire.js";

export const REQUEST_WORDS = [
  "waiting",
  "prefilling",
  "running",
  "parked",
  "spilled",
  "finished",
  "failed",
];
const STEPS_KEPT = 240;
const RECLAIMS_KEPT = 40;

/** The state after a keyframe; `before` tells which blocks changed. */
function fromKey(frame, before) {
  const { header } = frame;
  const state = {
    header,
    numBlocks: header.num_blocks,
    blockSize: header.block_size,
    group: header.group,
    blocks: arrayOf(frame, "blocks").slice(),
    changed: [],
    sequences: new Map(),
    nodes: new Map(),
    requests: new Map(),
    adapters: [],
    adapterNames: new Map(),
    steps: [],
    ticks: [],
    flying: [],
    reclaims: [],
    slots: { owners: [], snapshots: [], moves: [] },
    laws: [],
  };
  if (before && before.blocks.length === state.blocks.length) {
    state.changed = differing(before.blocks, state.blocks);
  }
  return state;
}

function differing(old, now) {
  const changed = [];
  for (let i = 0; i < now.length; i++) if (old[i] !== now[i]) changed.push(i);
  return changed;
}

/**
 * The state after `frame`. A keyframe makes a new state; a delta changes `state` in place.
 * Returns null for a delta without a state to stand on.
 */
export function applyFrame(state, frame) {
  if (frame.header.kind === "key") state = fromKey(frame, state);
  else if (!state) return null;
  else applyBlocks(state, frame);
  state.header = frame.header;
  applySequences(state, frame);
  applyNodes(state, frame);
  applyAdapters(state, frame);
  applyRequests(state, frame);
  applySteps(state, frame);
  applyReclaims(state, frame);
  applySlots(state, frame);
  applyLaws(state, frame);
  return state;
}

function applyBlocks(state, frame) {
  const whole = arrayOf(frame, "blocks");
  if (whole) {
    state.changed = differing(state.blocks, whole);
    state.blocks = whole.slice();
    return;
  }
  const [index, bytes] = columns(frame, "blocks.", ["index", "byte"]);
  index.forEach((block, i) => (state.blocks[block] = bytes[i]));
  state.changed = Array.from(index);
}

function applySequences(state, frame) {
  const [ids, lengths, requests, adapters, slots, ends, table] = columns(
    frame,
    "seq.",
    ["id", "len", "request", "adapter", "slot", "ends", "table"],
  );
  columns(frame, "seq.", ["gone"])[0].forEach((id) => state.sequences.delete(id));
  ids.forEach((id, i) =>
    state.sequences.set(id, {
      id,
      length: lengths[i],
      request: requests[i],
      adapter: adapters[i],
      slot: slots[i],
      table: rowOf(table, ends, i),
    }),
  );
}

function applyNodes(state, frame) {
  const [ids, parents, blocks, depths, adapters, refs, pins, used] = columns(frame, "node.", [
    "id",
    "parent",
    "block",
    "depth",
    "adapter",
    "refs",
    "pins",
    "used",
  ]);
  const texts = textsOf(frame, "node.text");
  columns(frame, "node.", ["gone"])[0].forEach((id) => state.nodes.delete(id));
  ids.forEach((id, i) =>
    state.nodes.set(id, {
      id,
      parent: parents[i],
      block: blocks[i],
      depth: depths[i],
      adapter: adapters[i],
      refs: refs[i],
      pins: pins[i],
      used: used[i],
      text: texts[i],
    }),
  );
}

const ADAPTER_NUMBERS = ["slot", "generation", "identity", "users", "rank", "bytes"];

/** All slots and the names of identities; a frame without them keeps those before. */
function applyAdapters(state, frame) {
  const rows = records(frame, "adapter.", ADAPTER_NUMBERS);
  if (!rows.length) return;
  const [names, states] = ["name", "state"].map((name) => textsOf(frame, "adapter." + name));
  state.adapters = rows.map((row, i) => ({ ...row, name: names[i], state: states[i] }));
  const known = textsOf(frame, "known.name");
  state.adapterNames = new Map(
    records(frame, "known.", ["identity", "generation"]).map((row, i) => [
      row.identity,
      { name: known[i], generation: row.generation },
    ]),
  );
}

const REQUEST_NUMBERS = [
  "prompt_tokens",
  "cached_tokens",
  "output_tokens",
  "max_tokens",
  "preemptions",
  "sequence",
  "peak_blocks",
  "arrived_s",
  "admitted_s",
  "first_token_s",
  "last_token_s",
  "finished_s",
];
const REQUEST_TEXTS = ["name", "finish_reason", "blocked_by", "error", "adapter", "tail", "miss"];

function applyRequests(state, frame) {
  const [ids, codes] = columns(frame, "req.", ["id", "state"]);
  const numbers = columns(frame, "req.", REQUEST_NUMBERS);
  const texts = REQUEST_TEXTS.map((name) => textsOf(frame, "req." + name));
  const [ends, states, starts, stops] = columns(frame, "span.", ["ends", "state", "start", "end"]);
  ids.forEach((id, i) => {
    const row = { id, state: REQUEST_WORDS[codes[i]], spans: [] };
    REQUEST_NUMBERS.forEach((name, k) => (row[name] = numbers[k][i]));
    REQUEST_TEXTS.forEach((name, k) => (row[name] = texts[k][i]));
    for (let s = i ? ends[i - 1] : 0; s < ends[i]; s++) {
      row.spans.push({ state: REQUEST_WORDS[states[s]], start: starts[s], end: stops[s] });
    }
    state.requests.set(id, row);
  });
}

const STEP_COLUMNS = [
  "ticket",
  "step",
  "rows",
  "fed",
  "discarded_rows",
  "reserved_blocks",
  "polls",
  "ring_slot",
  "blocked",
  "captured",
  "launch_s",
  "launched_s",
  "device_start_s",
  "device_end_s",
  "ready_s",
  "await_s",
  "settled_s",
];
const TICK_COLUMNS = [
  "step",
  "end_s",
  "duration_ms",
  "plan_ms",
  "launch_ms",
  "wait_ms",
  "commit_ms",
  "decode_rows",
  "prefill_tokens",
  "emitted_tokens",
  "free_blocks",
];

function applySteps(state, frame) {
  state.steps = state.steps.concat(records(frame, "feed.", STEP_COLUMNS)).slice(-STEPS_KEPT);
  state.ticks = state.ticks.concat(records(frame, "tick.", TICK_COLUMNS)).slice(-STEPS_KEPT);
  state.flying = records(frame, "fly.", ["ticket", "rows", "launch_s"]);
}

const RECLAIM_COLUMNS = [
  "seq_no",
  "t_s",
  "request",
  "prompt_tokens",
  "blocks_needed",
  "pinned_blocks",
  "target",
  "free_before",
  "free",
  "satisfied",
  "duration_ms",
  "evicted",
];

function applyReclaims(state, frame) {
  const rows = records(frame, "rec.", RECLAIM_COLUMNS);
  const reasons = textsOf(frame, "rec.reason");
  const [ends, blocks] = columns(frame, "rec.", ["ends", "blocks"]);
  rows.forEach((row, i) => {
    row.reason = reasons[i];
    row.blocks = Array.from(rowOf(blocks, ends, i));
  });
  state.reclaims = state.reclaims.concat(rows).slice(-RECLAIMS_KEPT);
}

function applySlots(state, frame) {
  const owners = arrayOf(frame, "slot.owner");
  if (!owners) return;
  state.slots = {
    owners: Array.from(owners),
    snapshots: records(frame, "snap.", ["id", "depth", "node", "adapter", "holders"]),
    moves: records(frame, "move.", ["t_s", "slot", "to", "sequence", "request"]),
  };
}

function applyLaws(state, frame) {
  const holds = arrayOf(frame, "law.holds");
  if (!holds) return;
  const details = textsOf(frame, "law.detail");
  state.laws = textsOf(frame, "law.name").map((law, i) => ({
    law,
    holds: holds[i] === 1,
    detail: details[i],
  }));
}

function columns(frame, prefix, names) {
  return names.map((name) => arrayOf(frame, prefix + name) ?? []);
}

function records(frame, prefix, names) {
  const arrays = columns(frame, prefix, names);
  return Array.from(arrays[0], (_, i) =>
    Object.fromEntries(names.map((name, k) => [name, arrays[k][i]])),
  );
}
