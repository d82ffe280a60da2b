// The wire format's reader; `views/wire.py` is the writer.
// A frame here is { header, buffer: ArrayBuffer } with every array at a multiple of 8 bytes.

export const WIRE_VERSION = 1;

const ARRAYS = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
};
const UTF8 = new TextDecoder();

/** The frame of a message: a copy, because a comm's view may start at any byte. */
export function frameOf(header, view) {
  const bytes = view
    ? view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)
    : new ArrayBuffer(0);
  return { header, buffer: bytes };
}

/** A named array of a frame, or null when it has none (empty ones are left out). */
export function arrayOf(frame, name) {
  const entry = frame.header.arrays[name];
  if (!entry) return null;
  const [dtype, offset, count] = entry;
  return new ARRAYS[dtype](frame.buffer, offset, count);
}

/** Named texts of a frame. */
export function textsOf(frame, name) {
  const bytes = arrayOf(frame, name) ?? new Uint8Array(0);
  const ends = arrayOf(frame, name + ".ends") ?? [];
  return Array.from(ends, (end, i) => UTF8.decode(bytes.subarray(i ? ends[i - 1] : 0, end)));
}

/** The part of `flat` that belongs to row `i`, where `ends` holds the end of each row. */
export function rowOf(flat, ends, i) {
  return flat.slice(i ? ends[i - 1] : 0, ends[i]);
}

/** The frames of a recorded run: per frame two u32 lengths, the header, the buffer. */
export function splitFrames(view) {
  const frames = [];
  for (let at = 0; at < view.byteLength; ) {
    const head = view.getUint32(at, true);
    const body = view.getUint32(at + 4, true);
    const start = view.byteOffset + at + 8;
    const header = JSON.parse(UTF8.decode(new Uint8Array(view.buffer, start, head)));
    frames.push({ header, buffer: view.buffer.slice(start + head, start + head + body) });
    at += 8 + head + body;
  }
  return frames;
}
