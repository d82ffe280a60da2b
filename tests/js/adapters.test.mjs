import assert from "node:assert/strict";
import { test } from "node:test";

import { adapterLabel, adapterLines, adapterWord } from "../../metrale_lab/views/static/names.js";
import { applyFrame } from "../../metrale_lab/views/static/reducer.js";
import { deltaFrame, keyFrame } from "./make_frame.mjs";

const SLOTS = {
  "adapter.slot": ["u4", [0, 1, 2]],
  "adapter.generation": ["u4", [1, 2, 0]],
  "adapter.identity": ["u4", [1, 3, 0]],
  "adapter.users": ["u4", [2, 1, 0]],
  "adapter.rank": ["u4", [4, 8, 0]],
  "adapter.bytes": ["f8", [400, 800, 0]],
  "adapter.name": ["text", ["poet", "größer", ""]],
  "adapter.state": ["text", ["draining", "loaded", "free"]],
  "known.identity": ["u4", [1, 2, 3]],
  "known.generation": ["u4", [1, 1, 2]],
  "known.name": ["text", ["poet", "größer", "größer"]],
};
const NODES = {
  "node.id": ["i4", [0, 1, 2, 3]],
  "node.parent": ["i4", [-1, 0, -1, -1]],
  "node.block": ["i4", [0, 1, 2, 3]],
  "node.depth": ["u4", [4, 8, 4, 4]],
  "node.adapter": ["i4", [0, 0, 2, 3]],
  "node.refs": ["u2", [1, 1, 1, 2]],
  "node.pins": ["u2", [0, 0, 0, 0]],
  "node.used": ["f8", [0, 0, 0, 0]],
  "node.text": ["text", ["a", "b", "c", "d"]],
};

test("identities have the name and generation that they were loaded under", () => {
  const state = applyFrame(null, keyFrame(1, [0], {}, SLOTS));
  assert.equal(adapterWord(state, 0), "base model");
  assert.equal(adapterWord(state, 2), "größer, generation 1");
  assert.equal(adapterWord(state, 9), "adapter 9");
  assert.deepEqual([0, 2, 9].map((one) => adapterLabel(state, one)), ["", "größer #1: ", "adapter 9: "]);
});

test("a frame that says nothing of adapters keeps them", () => {
  let state = applyFrame(null, keyFrame(1, [0], {}, SLOTS));
  state = applyFrame(state, deltaFrame(2));
  assert.equal(state.adapters.length, 3);
  state = applyFrame(state, deltaFrame(3, {}, { ...SLOTS, "adapter.users": ["u4", [0, 1, 0]] }));
  assert.equal(state.adapters[0].users, 0);
});

test("each adapter has a line, and what was replaced has one while it is cached", () => {
  const state = applyFrame(null, keyFrame(1, [0, 0, 0, 0], {}, { ...SLOTS, ...NODES }));
  const told = adapterLines(state).map((one) => [one.word, one.state, one.users, one.cached]);
  assert.deepEqual(told, [
    ["base model", "", 0, 2],
    ["poet, generation 1", "draining", 2, 0],
    ["größer, generation 2", "loaded", 1, 1],
    ["größer, generation 1", "gone", 0, 1],
  ]);
});

test("without adapters there are no lines", () => {
  assert.deepEqual(adapterLines(applyFrame(null, keyFrame(1, [0], {}, NODES))), []);
});
