import assert from "node:assert/strict";
import { test } from "node:test";

import {
  blockRefs,
  blockWord,
  describeBlock,
  holdersOf,
} from "../../metrale_lab/views/static/blocks.js";
import { applyFrame } from "../../metrale_lab/views/static/reducer.js";
import { Ring } from "../../metrale_lab/views/static/ring.js";
import { frameOf, splitFrames, textsOf } from "../../metrale_lab/views/static/wire.js";
import { deltaFrame, keyFrame, makeFrame } from "./make_frame.mjs";

const SEQUENCE = {
  "seq.id": ["i4", [7]],
  "seq.len": ["u4", [6]],
  "seq.request": ["i4", [3]],
  "seq.adapter": ["i4", [0]],
  "seq.slot": ["i4", [1]],
  "seq.ends": ["u4", [2]],
  "seq.table": ["u4", [2, 0]],
};

test("a block's byte is its state and its references", () => {
  assert.equal(blockWord(3 | (5 << 3)), "shared");
  assert.equal(blockRefs(3 | (5 << 3)), 5);
});

test("texts keep their characters across their ends", () => {
  const frame = makeFrame({}, { names: ["text", ["a", "", "größer → 水", "z"]] });
  assert.deepEqual(textsOf(frame, "names"), ["a", "", "größer → 水", "z"]);
  assert.deepEqual(textsOf(frame, "missing"), []);
});

test("a delta changes what it names and nothing else", () => {
  let state = applyFrame(null, keyFrame(1, [0, 0, 9, 9], {}, SEQUENCE));
  assert.deepEqual(Array.from(state.sequences.get(7).table), [2, 0]);
  state = applyFrame(state, deltaFrame(2, { 1: 9, 3: 0 }));
  assert.deepEqual(Array.from(state.blocks), [0, 9, 9, 0]);
  assert.deepEqual(state.changed, [1, 3]);
  assert.equal(state.sequences.size, 1);
  state = applyFrame(state, deltaFrame(3, {}, { "seq.gone": ["i4", [7]] }));
  assert.equal(state.sequences.size, 0);
  assert.deepEqual(state.changed, []);
});

test("a keyframe tells what changed since the state before", () => {
  const before = applyFrame(null, keyFrame(1, [0, 0, 9]));
  const state = applyFrame(before, keyFrame(2, [0, 9, 9]));
  assert.deepEqual(state.changed, [1]);
});

test("a frame whose bytes start anywhere in a message is read", () => {
  const made = keyFrame(1, [1, 2, 3]);
  const message = new Uint8Array(made.buffer.byteLength + 3);
  message.set(new Uint8Array(made.buffer), 3);
  const frame = frameOf(made.header, new DataView(message.buffer, 3));
  assert.deepEqual(Array.from(applyFrame(null, frame).blocks), [1, 2, 3]);
});

test("holders of a block are its sequences with the block's place in them", () => {
  const state = applyFrame(null, keyFrame(1, [9, 0, 9], {}, SEQUENCE));
  const holders = holdersOf(state);
  assert.equal(holders.get(2)[0].position, 0);
  assert.equal(holders.get(0)[0].position, 1);
  assert.equal(holders.has(1), false);
});

test("a block is described with its owner, its filling and its node", () => {
  const node = {
    "node.id": ["i4", [5]],
    "node.parent": ["i4", [-1]],
    "node.block": ["i4", [0]],
    "node.depth": ["u4", [8]],
    "node.adapter": ["i4", [0]],
    "node.refs": ["u2", [2]],
    "node.pins": ["u2", [0]],
    "node.used": ["f8", [0]],
    "node.text": ["text", ["once upon"]],
  };
  const shared = 3 | (2 << 3);
  const state = applyFrame(null, keyFrame(1, [shared, 0, 9], {}, { ...SEQUENCE, ...node }));
  const holders = holdersOf(state);
  assert.equal(
    describeBlock(state, holders, 0),
    "block 0 · shared · 2 references · request 3, its block 1, 2 of 4 tokens" +
      " · prefix node 5, 8 tokens deep · used 0.1 s ago",
  );
  assert.equal(describeBlock(state, holders, 1), "block 1 · free");
});

test("a step that comes twice is only in the deltas' order, the latest last", () => {
  const step = (ticket) => ({ "feed.ticket": ["i4", [ticket]] });
  let state = applyFrame(null, keyFrame(1, [0], {}, step(1)));
  state = applyFrame(state, deltaFrame(2, {}, step(2)));
  assert.deepEqual(state.steps.map((one) => one.ticket), [1, 2]);
  state = applyFrame(state, keyFrame(3, [0], {}, step(2)));
  assert.deepEqual(state.steps.map((one) => one.ticket), [2]);
});

test("the ring replays any moment and says what changed there", () => {
  const ring = new Ring();
  ring.push(keyFrame(0, [0, 0]));
  ring.push(deltaFrame(1, { 0: 9 }));
  ring.push(keyFrame(2, [9, 9]));
  ring.push(deltaFrame(3, { 0: 0 }));
  const at = (i) => Array.from(ring.stateAt(i).blocks);
  assert.deepEqual([at(0), at(1), at(2), at(3)], [[0, 0], [9, 0], [9, 9], [0, 9]]);
  assert.deepEqual(ring.stateAt(2).changed, [1]);
  assert.deepEqual(Array.from(ring.live.blocks), [0, 9]);
});

test("after a lost frame deltas wait for a keyframe, and the gap is marked", () => {
  const ring = new Ring();
  assert.equal(ring.push(keyFrame(0, [0, 0])), "key");
  assert.equal(ring.push(deltaFrame(2, { 0: 9 })), "lost");
  assert.equal(ring.gapAhead, true);
  assert.equal(ring.push(deltaFrame(3, { 1: 9 })), "lost");
  assert.deepEqual(Array.from(ring.live.blocks), [0, 0]);
  assert.equal(ring.push(keyFrame(4, [9, 9])), "key");
  assert.equal(ring.push(deltaFrame(5, { 1: 0 })), "delta");
  assert.deepEqual(Array.from(ring.live.blocks), [9, 0]);
  assert.deepEqual(ring.frames.map((one) => one.gap), [false, true, false]);
  assert.equal(ring.lost, 1);
});

test("a stream that is joined later needs its keyframe and is no gap", () => {
  const ring = new Ring();
  ring.push(keyFrame(-1, [0]));
  ring.joinStream();
  assert.equal(ring.push(deltaFrame(40, { 0: 9 })), "lost");
  assert.equal(ring.gapAhead, false);
  assert.equal(ring.push(keyFrame(41, [9])), "key");
  assert.equal(ring.frames.at(-1).gap, false);
});

test("the ring keeps a minute and starts with a keyframe", () => {
  const ring = new Ring(60);
  for (let seq = 0; seq <= 1000; seq++) {
    ring.push(seq % 20 ? deltaFrame(seq, { 0: seq % 256 }) : keyFrame(seq, [seq % 256]));
  }
  assert.equal(ring.frames[0].header.kind, "key");
  const first = ring.frames[0].header.t;
  assert.ok(first <= 40 && first > 37, `starts at ${first}`);
  assert.equal(ring.stateAt(0).blocks[0], (first * 10) % 256);
});

test("an event or a tick is found in the ring", () => {
  const ring = new Ring();
  ring.push(keyFrame(0, [0], { step: 3, event: 10 }));
  ring.push(keyFrame(1, [0], { step: 5, event: 30 }));
  assert.equal(ring.find({ step: 4 }), 0);
  assert.equal(ring.find({ step: 5 }), 1);
  assert.equal(ring.find({ event: 29 }), 0);
  assert.equal(ring.find({ event: 9 }), -1);
});

test("a recorded run is split into its frames", () => {
  const frames = [keyFrame(0, [1, 2]), deltaFrame(1, { 1: 7 })];
  const parts = frames.map(({ header, buffer }) => {
    const head = new TextEncoder().encode(JSON.stringify(header));
    const lengths = new Uint8Array(new Uint32Array([head.length, buffer.byteLength]).buffer);
    return [...lengths, ...head, ...new Uint8Array(buffer)];
  });
  const bytes = Uint8Array.from([0, ...parts.flat()]);
  const [key, delta] = splitFrames(new DataView(bytes.buffer, 1));
  assert.deepEqual(Array.from(applyFrame(applyFrame(null, key), delta).blocks), [1, 7]);
});
