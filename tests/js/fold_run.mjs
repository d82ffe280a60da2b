// Folds a recorded run given as a file and prints its last state as JSON.

import { readFileSync } from "node:fs";

import { blockRefs, blockWord } from "../../metrale_lab/views/static/blocks.js";
import { Ring } from "../../metrale_lab/views/static/ring.js";
import { splitFrames } from "../../metrale_lab/views/static/wire.js";

const bytes = readFileSync(process.argv[2]);
const ring = new Ring(Infinity);
for (const frame of splitFrames(new DataView(bytes.buffer, bytes.byteOffset, bytes.length))) {
  ring.push(frame);
}
const { live } = ring;
const state = {
  frames: ring.frames.length,
  lost: ring.lost,
  words: Array.from(live.blocks, blockWord),
  references: Array.from(live.blocks, blockRefs),
  tables: [...live.sequences.values()].map((one) => [one.id, Array.from(one.table)]),
  nodes: [...live.nodes.values()].map((one) => [one.id, one.parent, one.block, one.text]),
  requests: [...live.requests.values()].map((one) => [one.id, one.name, one.state, one.tail]),
  slots: {
    owners: live.slots.owners,
    snapshots: live.slots.snapshots.map((one) => [one.id, one.depth, one.node, one.holders]),
    moves: live.slots.moves.map((one) => [one.slot, one.to]),
  },
  tickets: live.steps.map((one) => one.ticket),
};
process.stdout.write(JSON.stringify(state));
