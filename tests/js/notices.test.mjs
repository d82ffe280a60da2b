import assert from "node:assert/strict";
import { test } from "node:test";

import { noticeOf, statusOf } from "../../metrale_lab/views/static/notices.js";
import { ratesText } from "../../metrale_lab/views/static/controls.js";

const header = (engine, counts = {}) => ({ engine, counts: { requests: 0, ...counts } });
const live = { post: () => {}, gone: false };

test("the engine's standing is said in words, the strongest first", () => {
  const word = (store, given) => statusOf(store, given)[1];
  assert.equal(word(live, undefined), "no engine yet");
  assert.equal(word(live, header({})), "idle, no requests yet");
  assert.equal(word(live, header({}, { requests: 4 })), "idle");
  assert.equal(word(live, header({}, { running: 2, waiting: 1, parked: 1 })), "2 running, 2 waiting");
  assert.equal(word(live, header({ paused: true, paused_by: "panel" })), "paused here");
  assert.equal(word(live, header({ paused: true, paused_by: "code" })), "paused by code");
  assert.equal(word(live, header({ closed: true, paused: true })), "engine closed");
  assert.equal(word({ ...live, gone: true }, header({ closed: true })), "kernel gone");
  assert.equal(word({ post: null }, header({ closed: true })), "recorded run");
});

const calm = { slow: false, gone: false, waiting: new Map(), ring: { gapAhead: false } };

test("nothing to know, nothing said", () => {
  assert.equal(noticeOf(calm, { header: { dropped: 0, said: [] } }), "");
  assert.equal(noticeOf(calm, null), "");
});

test("what waits, what is lost and what is left out is said", () => {
  const waiting = new Map([[1, "pause"], [2, "submit"], [3, "pause"]]);
  assert.equal(
    noticeOf({ ...calm, slow: true, waiting }, null),
    "The kernel is busy with a cell: controls wait for the cell (pause, prompt).",
  );
  assert.match(noticeOf({ ...calm, ring: { gapAhead: true } }, null), /Frames were lost/);
  const state = { header: { dropped: 12, said: ["3 prefix nodes left out"] } };
  assert.match(noticeOf(calm, state), /Overwritten: 12 old events/);
  assert.match(noticeOf(calm, state), /Too much for one frame: 3 prefix nodes left out\./);
});

test("rates are shown with the cost of looking", () => {
  const stats = { tokens_per_s: 50, hit_rate: 0.621, recording_share: 0.02 };
  assert.equal(ratesText(stats, false), "50.0 tokens/s · 62 % of prompt tokens reused");
  assert.match(ratesText(stats), /recording costs 2\.0 % · 51\.0 tokens\/s without it$/);
  assert.equal(ratesText({}), "");
});
