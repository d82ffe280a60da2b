import assert from "node:assert/strict";
import { test } from "node:test";

import {
  atTick,
  bytesText,
  cellAt,
  counted,
  gridLayout,
  momentText,
  moveCell,
  niceStep,
  pathOf,
  ranges,
  timeline,
  timeText,
  treeLayout,
} from "../../metrale_lab/views/static/layout.js";

test("every pool fits its box, with cells as large as possible", () => {
  for (const count of [1, 7, 24, 96, 512, 4096, 65536]) {
    const grid = gridLayout(count, 760, 300);
    assert.ok(grid.columns * grid.rows >= count);
    assert.ok(grid.columns * grid.cell <= 760, `${count} are too wide`);
    assert.ok(grid.rows * grid.cell <= 300, `${count} are too high`);
    assert.ok((grid.rows - 1) * grid.columns < count, `${count} have an empty row`);
  }
  assert.equal(gridLayout(96, 760, 300).cell, 26);
  assert.equal(gridLayout(262144, 760, 300).cell, 1);
});

test("a point finds its cell, and none beside the cells", () => {
  const grid = { columns: 8, rows: 2, cell: 10 };
  assert.equal(cellAt(grid, 12, 25, 5), 2);
  assert.equal(cellAt(grid, 12, 35, 15), 11);
  assert.equal(cellAt(grid, 12, 45, 15), -1);
  assert.equal(cellAt(grid, 12, -1, 5), -1);
  assert.equal(cellAt(grid, 12, 81, 5), -1);
});

test("arrow keys stay on the map", () => {
  const grid = { columns: 8, rows: 2, cell: 10 };
  assert.equal(moveCell(grid, 12, 3, "ArrowDown"), 11);
  assert.equal(moveCell(grid, 12, 4, "ArrowDown"), 4);
  assert.equal(moveCell(grid, 12, 0, "ArrowLeft"), 0);
  assert.equal(moveCell(grid, 12, 5, "Home"), 0);
  assert.equal(moveCell(grid, 12, 5, "End"), 11);
  assert.equal(moveCell(grid, 12, 5, "x"), 5);
});

const tree = (rows) =>
  new Map(rows.map(([id, parent]) => [id, { id, parent, adapter: 0 }]));

test("a chain is one row; each branch after the first has its own", () => {
  const nodes = tree([[0, -1], [1, 0], [2, 1], [3, 1], [4, 0], [5, -1]]);
  const { boxes, rows, levels } = treeLayout(nodes);
  const place = Object.fromEntries(boxes.map((box) => [box.id, [box.level, box.row]]));
  assert.deepEqual(place, { 0: [0, 0], 1: [1, 0], 2: [2, 0], 3: [2, 1], 4: [1, 2], 5: [0, 3] });
  assert.deepEqual([rows, levels], [4, 3]);
});

test("no two boxes lie on each other, also when parents are missing", () => {
  const nodes = tree([...Array(200).keys()].map((id) => [id, id % 7 ? Math.floor(id / 3) : -9]));
  const { boxes } = treeLayout(nodes);
  assert.equal(boxes.length, 200);
  assert.equal(new Set(boxes.map((box) => `${box.level},${box.row}`)).size, 200);
});

test("a path goes from a node to its root", () => {
  assert.deepEqual(pathOf(tree([[0, -1], [1, 0], [2, 1]]), 2), [2, 1, 0]);
  assert.deepEqual(pathOf(tree([[0, -1]]), 9), []);
});

const step = (ticket, from, more = {}) => ({
  ticket,
  rows: 2,
  discarded_rows: 0,
  launch_s: from,
  launched_s: from + 1,
  device_start_s: from + 2,
  device_end_s: from + 6,
  ready_s: from + 7,
  await_s: from + 3,
  settled_s: from + 8,
  ...more,
});

test("the device's idle time between two steps is a bubble", () => {
  const line = timeline([step(0, 0), step(1, 10)], [], [], 8);
  const bubbles = line.device.filter((one) => one.word === "bubble");
  assert.deepEqual(bubbles.map((one) => [one.from, one.to]), [[7, 12]]);
  assert.deepEqual([line.start, line.end], [0, 18]);
});

test("a step that begins while the one before ends leaves no bubble", () => {
  const line = timeline([step(0, 0), step(1, 5, { device_start_s: 7 })], [], [], 8);
  assert.equal(line.device.some((one) => one.word === "bubble"), false);
});

test("a step whose rows were all thrown away is in its own colour", () => {
  const words = (more) => timeline([step(0, 0, more)], [], [], 8).device[0].word;
  assert.equal(words({ discarded_rows: 2 }), "discarded");
  assert.equal(words({ discarded_rows: 1 }), "forward");
});

test("only the last steps are shown, and ticks inside their time", () => {
  const steps = [...Array(20).keys()].map((i) => step(i, 10 * i));
  const tick = { step: 0, end_s: 5, duration_ms: 4000, plan_ms: 500, commit_ms: 500 };
  const line = timeline(steps, [tick, { ...tick, end_s: 195 }], [], 4);
  assert.equal(line.start, 160);
  assert.equal(line.host.filter((one) => one.word === "plan").length, 1);
});

test("a moment before the first tick is not called tick -1", () => {
  assert.equal(momentText(undefined, undefined, false, false), "no tick yet");
  assert.equal(momentText(-1, -1, false, false), "no tick yet");
  assert.equal(momentText(-1, -1, true, false), "no tick yet");
  assert.equal(momentText(-1, -1, true, true), "no tick yet");
  assert.equal(momentText(-1, 4, true, false), "view before the first tick, engine at 4");
  assert.equal(momentText(-1, 4, true, true), "before the first tick, of 4");
  assert.equal(momentText(0, 0, false, false), "tick 0");
  assert.equal(momentText(3, 4, true, false), "view at tick 3, engine at 4");
  assert.equal(momentText(3, 4, true, true), "tick 3 of 4");
  assert.equal(atTick(-1), "before the first tick");
});

test("texts read well", () => {
  assert.equal(counted(1, "row"), "1 row");
  assert.equal(counted(0, "row"), "0 rows");
  assert.equal(ranges([0, 1, 2, 5, 7, 8]), "0–2, 5, 7–8");
  assert.equal(ranges([]), "");
  assert.equal(ranges([1, 3, 5], 2), "1, 3 and 1 more");
  assert.equal(bytesText(98_362_432), "94 MiB");
  assert.equal(bytesText(1_474_560), "1.4 MiB");
  assert.equal(bytesText(12), "12 B");
  assert.equal(timeText(0.0042), "4.2 ms");
  assert.equal(timeText(0.25), "250 ms");
  assert.equal(timeText(2.5), "2.50 s");
  assert.equal(timeText(NaN), "–");
  assert.equal(niceStep(0.9, 5), 0.2);
});
