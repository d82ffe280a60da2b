// Blocks as bytes and in words. Plain functions; no browser needed.

import { counted } from "./layout.js";
import { adapterWord } from "./names.js";

export const BLOCK_WORDS = ["free", "private", "cached", "shared", "reserved", "held"];

/** State word of a block's byte. */
export const blockWord = (byte) => BLOCK_WORDS[byte & 7];
/** References in a block's byte; 31 means 31 or more. */
export const blockRefs = (byte) => byte >> 3;

/** Sequences that hold each cell: Map cell -> [{ sequence, position }]. */
export function holdersOf(state) {
  const holders = new Map();
  for (const sequence of state.sequences.values()) {
    sequence.table.forEach((block, position) => {
      const cell = Math.floor(block / state.group);
      const one = { sequence, position };
      if (holders.has(cell)) holders.get(cell).push(one);
      else holders.set(cell, [one]);
    });
  }
  return holders;
}

/** A cell of the block map in words; `holders` is what `holdersOf` says. */
export function describeBlock(state, holders, cell) {
  const refs = blockRefs(state.blocks[cell]);
  const first = cell * state.group;
  const last = Math.min(first + state.group, state.numBlocks) - 1;
  const parts = [first === last ? `block ${first}` : `blocks ${first}–${last}`];
  parts.push(blockWord(state.blocks[cell]));
  if (refs) parts.push(refs === 31 ? "31 or more references" : counted(refs, "reference"));
  for (const { sequence, position } of (holders.get(cell) ?? []).slice(0, 4)) {
    const tokens = sequence.length - position * state.blockSize;
    const filled = Math.max(0, Math.min(state.blockSize, tokens));
    const owner = sequence.request >= 0 ? `request ${sequence.request}` : `sequence ${sequence.id}`;
    parts.push(`${owner}, its block ${position}, ${filled} of ${counted(state.blockSize, "token")}`);
  }
  const node = nodeOf(state, cell);
  if (node) {
    parts.push(`prefix node ${node.id}, ${counted(node.depth, "token")} deep`);
    if (node.adapter > 0) parts.push(adapterWord(state, node.adapter));
    parts.push(`used ${Math.max(0, state.header.t - node.used).toFixed(1)} s ago`);
  }
  return parts.join(" · ");
}

function nodeOf(state, cell) {
  for (const node of state.nodes.values()) {
    if (Math.floor(node.block / state.group) === cell) return node;
  }
  return null;
}
