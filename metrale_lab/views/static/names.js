// What identities are called. Plain functions; no browser needed.

/** An adapter of the prefix cache: "poet, generation 2"; 0 is the base model. */
export function adapterWord(state, identity) {
  if (!identity) return "base model";
  const known = state.adapterNames.get(identity);
  return known ? `${known.name}, generation ${known.generation}` : `adapter ${identity}`;
}

/** The same in a few letters, for the beginning of a label: "poet #2: "; "" for the base model. */
export function adapterLabel(state, identity) {
  const known = state.adapterNames.get(identity);
  if (!identity) return "";
  return known ? `${known.name} #${known.generation}: ` : `adapter ${identity}: `;
}

/** One line per adapter: the base model, what is loaded, and what only the cache still knows. */
export function adapterLines(state) {
  if (!state.adapters.length) return [];
  const cached = new Map();
  for (const { adapter } of state.nodes.values()) {
    cached.set(adapter, (cached.get(adapter) ?? 0) + 1);
  }
  const take = (identity) => {
    const blocks = cached.get(identity) ?? 0;
    cached.delete(identity);
    return blocks;
  };
  const base = [...state.sequences.values()].filter((one) => one.adapter === 0).length;
  const lines = [{ word: "base model", slot: null, state: "", users: base, cached: take(0) }];
  for (const one of state.adapters) {
    if (one.state === "free") continue;
    lines.push({ ...one, word: adapterWord(state, one.identity), cached: take(one.identity) });
  }
  for (const [identity, blocks] of cached) {
    const word = adapterWord(state, identity);
    lines.push({ word, slot: null, state: "gone", users: 0, cached: blocks });
  }
  return lines;
}
