// Drawing on canvases: themes, hatches, and elements made in one call.

/** An element: tag, attributes (`on` + event, `text`, or plain), children. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Sets a text only when it differs, so that selections and screen readers are left alone. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Is the page dark? JupyterLab and VS Code say so; else the system's preference counts. */
export function isDark() {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  if (vscodeThemeKind !== undefined) return vscodeThemeKind.includes("dark");
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Calls `changed` when the theme may have changed; returns a function that stops it. */
export function watchTheme(changed) {
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(changed);
  const attributeFilter = ["data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"];
  observer.observe(document.body, { attributes: true, attributeFilter });
  query.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    query.removeEventListener("change", changed);
  };
}

/** "#rrggbb" as [r, g, b]. */
export function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** Black or white, whichever reads better on a colour. */
export function inkOn(hex) {
  const [r, g, b] = rgb(hex).map((one) => (one / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.32 ? "#15181c" : "#ffffff";
}

/** Sizes a canvas to CSS pixels at the screen's resolution; returns its context, cleared. */
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Fills a box with a paint: its colour, and its hatch in a quiet line over it. */
export function fillBox(context, paint, x, y, width, height) {
  context.fillStyle = paint.colour;
  context.fillRect(x, y, width, height);
  hatch(context, paint, x, y, width, height);
}

/** The hatch of a paint over a box, in an ink that reads on its colour. */
export function hatch(context, paint, x, y, width, height) {
  if (!paint.hatch || width < 3 || height < 3) return;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = context.fillStyle = inkOn(paint.colour);
  context.globalAlpha = 0.42;
  context.lineWidth = 1;
  HATCHES[paint.hatch[0]]?.(context, x, y, width, height);
  context.restore();
}

const HATCHES = {
  ".": (context, x, y, width, height) => {
    const gap = Math.max(4, Math.min(7, height / 2));
    for (let py = y + gap / 2; py < y + height; py += gap) {
      for (let px = x + gap / 2; px < x + width; px += gap) context.fillRect(px, py, 1.4, 1.4);
    }
  },
  "/": (context, x, y, width, height) => slanted(context, x, y, width, height, 1),
  x: (context, x, y, width, height) => {
    slanted(context, x, y, width, height, 1);
    slanted(context, x, y, width, height, -1);
  },
  "-": (context, x, y, width, height) => {
    context.beginPath();
    for (let py = y + 3; py < y + height; py += 4) line(context, x, py, x + width, py);
    context.stroke();
  },
  "|": (context, x, y, width, height) => {
    context.beginPath();
    for (let px = x + 2; px < x + width; px += 4) line(context, px, y, px, y + height);
    context.stroke();
  },
};

function slanted(context, x, y, width, height, direction) {
  context.beginPath();
  for (let at = -height; at < width; at += 6) {
    if (direction > 0) line(context, x + at, y + height, x + at + height, y);
    else line(context, x + at, y, x + at + height, y + height);
  }
  context.stroke();
}

function line(context, x0, y0, x1, y1) {
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
}

/** Replaces a table body's rows; each is a list of texts or numbers. */
export function fillRows(body, rows) {
  const row = (cells) => make("tr", {}, ...cells.map((cell) => make("td", { text: `${cell}` })));
  body.replaceChildren(...rows.map(row));
}

/** A folded "As a table" below a canvas; `rows()` is asked only while it is open. */
export class TextTable {
  constructor(caption, heads, rows) {
    this.rows = rows;
    this.body = make("tbody");
    const head = make("tr", {}, ...heads.map((one) => make("th", { scope: "col", text: one })));
    this.element = make(
      "details",
      { class: "ml-table", ontoggle: () => this.draw() },
      make("summary", { text: "As a table" }),
      make(
        "table",
        {},
        make("caption", { text: caption }),
        make("thead", {}, head),
        this.body,
      ),
    );
  }

  draw(state = this.state) {
    this.state = state;
    if (this.element.open && state) fillRows(this.body, this.rows(state));
  }
}

/** A swatch with its word: colour, hatch and text together. */
export function legendItem(word, paint, note = "") {
  const canvas = make("canvas", { class: "ml-swatch", "aria-hidden": "true" });
  fillBox(sized(canvas, 14, 14), paint, 0, 0, 14, 14);
  return make("span", { class: "ml-key" }, canvas, make("span", { text: word }), note);
}
