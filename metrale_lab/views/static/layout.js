// Where things lie on a panel. Plain functions; no browser needed.

/** Columns, rows and cell size (CSS pixels) for `count` cells in a box. */
export function gridLayout(count, width, maxHeight, largest = 26) {
  for (let cell = largest; cell >= 1; cell--) {
    let columns = Math.min(Math.floor(width / cell), Math.max(count, 1));
    if (columns > 16) columns -= columns % 8;
    if (columns < 1) continue;
    const rows = Math.max(1, Math.ceil(count / columns));
    if (rows * cell <= maxHeight || cell === 1) return { columns, rows, cell };
  }
  return { columns: 1, rows: Math.max(count, 1), cell: 1 };
}

/** The cell under a point, or -1. */
export function cellAt(grid, count, x, y) {
  const column = Math.floor(x / grid.cell);
  const row = Math.floor(y / grid.cell);
  if (column < 0 || row < 0 || column >= grid.columns || row >= grid.rows) return -1;
  const cell = row * grid.columns + column;
  return cell < count ? cell : -1;
}

/** The cell that an arrow key leads to; other keys keep it. */
export function moveCell(grid, count, cell, key) {
  const steps = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: -grid.columns,
    ArrowDown: grid.columns,
    PageUp: -4 * grid.columns,
    PageDown: 4 * grid.columns,
  };
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (!(key in steps)) return cell;
  const next = cell + steps[key];
  return next >= 0 && next < count ? next : cell;
}

/**
 * Boxes of a prefix tree: { id, level, row }, roots first. Each leaf has a row of its own and a
 * parent stands beside its first child, so a long prompt is one straight line.
 */
export function treeLayout(nodes) {
  const children = new Map();
  const roots = [];
  for (const node of nodes.values()) {
    if (nodes.has(node.parent)) {
      if (!children.has(node.parent)) children.set(node.parent, []);
      children.get(node.parent).push(node.id);
    } else roots.push(node.id);
  }
  const byAdapter = (a, b) => nodes.get(a).adapter - nodes.get(b).adapter || a - b;
  roots.sort(byAdapter);
  const boxes = [];
  let row = 0;
  let levels = 0;
  const stack = roots.map((id) => ({ id, level: 0, first: true })).reverse();
  let started = false;
  while (stack.length) {
    const { id, level, first } = stack.pop();
    if (started && (!first || level === 0)) row++;
    started = true;
    boxes.push({ id, level, row });
    levels = Math.max(levels, level + 1);
    const below = (children.get(id) ?? []).sort((a, b) => a - b);
    below
      .map((child, i) => ({ id: child, level: level + 1, first: i === 0 }))
      .reverse()
      .forEach((one) => stack.push(one));
  }
  return { boxes, rows: boxes.length ? row + 1 : 0, levels };
}

/** The ids from a node up to its root. */
export function pathOf(nodes, id) {
  const path = [];
  for (let node = nodes.get(id); node; node = nodes.get(node.parent)) path.push(node.id);
  return path;
}

/** What the timeline shows of the last `count` steps: time range, bars of both lanes, bubbles. */
export function timeline(steps, ticks, flying, count) {
  const shown = steps.slice(-count);
  if (!shown.length) return { start: 0, end: 0, host: [], device: [] };
  const start = shown[0].launch_s;
  const last = shown[shown.length - 1];
  const end = Math.max(last.settled_s, last.ready_s, ...flying.map((one) => one.launch_s));
  const host = [];
  const device = [];
  let ready = null;
  for (const step of shown) {
    const dropped = step.discarded_rows > 0;
    host.push(bar("launch", step.launch_s, step.launched_s, step));
    host.push(bar("wait", step.await_s, step.settled_s, step));
    if (ready !== null && step.device_start_s > ready) {
      device.push(bar("bubble", ready, step.device_start_s, step));
    }
    const whole = dropped && step.discarded_rows >= step.rows;
    device.push(bar(whole ? "discarded" : "forward", step.device_start_s, step.device_end_s, step));
    device.push(bar("argmax+copy", step.device_end_s, step.ready_s, step));
    ready = Math.max(ready ?? 0, step.ready_s);
  }
  for (const tick of ticks) {
    const from = tick.end_s - tick.duration_ms / 1000;
    if (tick.end_s < start || from > end) continue;
    host.unshift(bar("plan", from, from + tick.plan_ms / 1000, null));
    host.push(bar("settle", tick.end_s - tick.commit_ms / 1000, tick.end_s, null));
  }
  return { start, end, host, device };
}

function bar(word, from, to, step) {
  return { word, from, to: Math.max(from, to), step };
}

/** A round step for about `count` marks over `span`. */
export function niceStep(span, count) {
  const rough = span / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const unit = [1, 2, 5, 10].find((one) => one * power >= rough) ?? 10;
  return unit * power;
}

/** Numbers as ranges: [0,1,2,5] -> "0–2, 5". */
export function ranges(numbers, limit = 24) {
  const parts = [];
  for (let i = 0; i < numbers.length; ) {
    let j = i;
    while (j + 1 < numbers.length && numbers[j + 1] === numbers[j] + 1) j++;
    parts.push(i === j ? `${numbers[i]}` : `${numbers[i]}–${numbers[j]}`);
    i = j + 1;
  }
  const more = parts.length - limit;
  return parts.slice(0, limit).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** Bytes in the unit that reads best, powers of 1024. */
export function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** The number with its noun, in the plural unless it is one. */
export function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** "at tick 3"; ticks count from 0, and -1 is before the first. */
export function atTick(step) {
  return step < 0 ? "before the first tick" : `at tick ${step}`;
}

/** The moment that is shown, and where the engine is; steps are undefined before any frame. */
export function momentText(shown, last, held, recorded) {
  if (shown === undefined || last < 0) return "no tick yet";
  if (!held) return shown < 0 ? "no tick yet" : `tick ${shown}`;
  if (recorded) return shown < 0 ? `before the first tick, of ${last}` : `tick ${shown} of ${last}`;
  return `view ${atTick(shown)}, engine at ${last}`;
}

/** A duration given in seconds, as ms or s. */
export function timeText(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const ms = seconds * 1000;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  return ms < 1000 ? `${Math.round(ms)} ms` : `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}
