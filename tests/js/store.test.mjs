import assert from "node:assert/strict";
import { test } from "node:test";

import { Store, storeOf } from "../../metrale_lab/views/static/store.js";
import { deltaFrame, keyFrame } from "./make_frame.mjs";

function storeWith(...frames) {
  const posted = [];
  const store = new Store({}, (message) => posted.push(message));
  frames.forEach((frame) => store.push(frame));
  return { store, posted };
}

test("a held view stays while frames come, and goes back to live", () => {
  const { store } = storeWith(keyFrame(0, [0]), deltaFrame(1, { 0: 1 }));
  store.hold(0);
  store.push(deltaFrame(2, { 0: 2 }));
  assert.equal(store.state.blocks[0], 0);
  assert.equal(store.index, 0);
  store.goLive();
  assert.equal(store.state.blocks[0], 2);
  assert.equal(store.index, 2);
});

test("a held view outlives its frame in the ring", () => {
  const { store } = storeWith(keyFrame(0, [5]));
  store.hold(0);
  for (let seq = 1; seq < 900; seq++) store.push(keyFrame(seq, [1]));
  assert.equal(store.state.blocks[0], 5);
  assert.equal(store.index, 0);
});

test("a moment that the kernel asked for is held, and Live tells the kernel", () => {
  const { store, posted } = storeWith(keyFrame(0, [0]), keyFrame(1, [1]));
  const { header, buffer } = keyFrame(9, [7], { step: 0 });
  const head = new TextEncoder().encode(JSON.stringify(header));
  const lengths = new Uint8Array(new Uint32Array([head.length, buffer.byteLength]).buffer);
  const blob = Uint8Array.from([...lengths, ...head, ...new Uint8Array(buffer)]);
  store.holdStill(new DataView(blob.buffer));
  assert.equal(store.state.blocks[0], 7);
  assert.equal(store.index, 0);
  store.goLive();
  assert.equal(store.state.blocks[0], 1);
  assert.deepEqual(posted, [{ ask: "live" }]);
});

test("a lost frame asks for a keyframe once", () => {
  const { store, posted } = storeWith(keyFrame(0, [0]), deltaFrame(2), deltaFrame(3));
  assert.deepEqual(posted, [{ ask: "key" }]);
});

test("a command waits for its acknowledgement and says when that takes long", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { store, posted } = storeWith(keyFrame(0, [0]));
  store.command("pause");
  const [{ command, id }] = posted;
  assert.equal(command, "pause");
  assert.equal(store.slow, false);
  t.mock.timers.tick(600);
  assert.equal(store.slow, true);
  store.push(keyFrame(1, [0], { acks: ["another page's", id] }));
  assert.equal(store.slow, false);
  assert.equal(store.waiting.size, 0);
});

test("what is not answered is sent again, more and more rarely, with the same id", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { store, posted } = storeWith(keyFrame(0, [0]));
  store.command("pause");
  t.mock.timers.tick(1900);
  assert.equal(posted.length, 1);
  for (const seconds of [0.2, 4, 8, 16, 32, 64]) t.mock.timers.tick(seconds * 1000);
  assert.equal(posted.length, 6);
  assert.equal(new Set(posted.map((one) => one.id)).size, 1);
});

test("a hello is repeated until a frame comes", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { store, posted } = storeWith();
  store.hello("view");
  t.mock.timers.tick(2100);
  assert.deepEqual(posted, [{ hello: "view" }, { hello: "view" }]);
  const { header, buffer } = keyFrame(0, [0]);
  store.receive(header, [new DataView(buffer)]);
  t.mock.timers.tick(60_000);
  assert.equal(posted.length, 2);
});

test("frames of another version are refused in words", () => {
  const { store } = storeWith(keyFrame(0, [0], { v: 2 }));
  assert.equal(store.state, null);
  assert.match(store.trouble[0], /version 2, this page reads 1/);
});

test("a store whose kernel side is ending is lost, and sends nothing more", () => {
  const sent = [];
  const store = new Store({}, (message) => sent.push(message));
  store.receive({ ending: true }, []);
  store.command("pause");
  assert.equal(store.gone, true);
  assert.deepEqual(sent, []);
});

test("all panels of a page find one store, and a dead comm ends it", () => {
  const handlers = {};
  const traits = { mode: "live", palette: {}, recorded: null, still: null };
  const hub = {
    get: (name) => traits[name],
    on: (name, handler) => (handlers[name] = handler),
    once: (name, handler) => (handlers[name] = handler),
    send: () => {},
  };
  const store = storeOf(hub);
  assert.equal(storeOf(hub), store);
  const { header, buffer } = keyFrame(0, [3]);
  handlers["msg:custom"](header, [new DataView(buffer)]);
  assert.equal(store.state.blocks[0], 3);
  handlers.destroy();
  assert.equal(store.gone, true);
  store.command("pause");
  assert.equal(store.waiting.size, 0);
});
