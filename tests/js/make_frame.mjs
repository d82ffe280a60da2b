// Hand-made frames for the tests: the writer's twin.

const BYTES = { u1: 1, u2: 2, u4: 4, i4: 4, f4: 4, f8: 8 };
const SETTERS = {
  u1: "setUint8",
  u2: "setUint16",
  u4: "setUint32",
  i4: "setInt32",
  f4: "setFloat32",
  f8: "setFloat64",
};

/** A frame with the given arrays: { name: [dtype, values] } or { name: [texts] } as "text". */
export function makeFrame(header, arrays = {}) {
  const flat = {};
  for (const [name, [dtype, values]] of Object.entries(arrays)) {
    if (dtype !== "text") flat[name] = [dtype, values];
    else {
      const encoded = values.map((one) => [...new TextEncoder().encode(one)]);
      let end = 0;
      flat[name] = ["u1", encoded.flat()];
      flat[name + ".ends"] = ["u4", encoded.map((one) => (end += one.length))];
    }
  }
  const map = {};
  let size = 0;
  for (const [name, [dtype, values]] of Object.entries(flat)) {
    map[name] = [dtype, size, values.length];
    size += Math.ceil((values.length * BYTES[dtype]) / 8) * 8;
  }
  const buffer = new ArrayBuffer(size);
  const view = new DataView(buffer);
  for (const [name, [dtype, values]] of Object.entries(flat)) {
    values.forEach((value, i) => {
      view[SETTERS[dtype]](map[name][1] + i * BYTES[dtype], value, true);
    });
  }
  const counts = { free: 0, private: 0, cached: 0, shared: 0, reserved: 0, held: 0 };
  const full = { v: 1, t: 0, step: 0, event: 0, acks: [], counts, engine: {}, said: [], stats: {} };
  return { header: { ...full, memory: {}, errors: [], ...header, arrays: map }, buffer };
}

/** A keyframe of a pool whose blocks have these bytes. */
export function keyFrame(seq, bytes, more = {}, arrays = {}) {
  const shape = { num_blocks: bytes.length, block_size: 4, group: 1 };
  const blocks = { blocks: ["u1", bytes] };
  return makeFrame({ kind: "key", seq, t: seq / 10, step: seq, ...shape, ...more }, {
    ...blocks,
    ...arrays,
  });
}

/** A delta that changes these blocks: { index: byte }. */
export function deltaFrame(seq, changes = {}, arrays = {}) {
  const index = Object.keys(changes).map(Number);
  return makeFrame(
    { kind: "delta", seq, t: seq / 10, step: seq },
    {
      "blocks.index": ["u4", index],
      "blocks.byte": ["u1", Object.values(changes)],
      ...arrays,
    },
  );
}
