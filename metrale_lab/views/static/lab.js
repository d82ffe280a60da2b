// The module's entry: shows panels of a widget's model, or of a recorded run.

import { Page } from "./page.js";
import { make } from "./paint.js";
import { Store, storeOf } from "./store.js";

/** Shows panels of a store in an element; returns a function that takes them away. */
function mount(element, store, options) {
  const root = make("section");
  element.append(root);
  const page = new Page(root, store, options);
  return () => {
    page.stop();
    root.remove();
  };
}

/** Shows a recorded run, given as a DataView of its frames. */
export function mountRecorded(element, view, { palette, ...options }) {
  const store = new Store(palette, null);
  store.load(view);
  store.hold(0);
  return mount(element, store, options);
}

const PAGE = (globalThis[Symbol.for("metrale-lab page")] ??= Math.random().toString(36).slice(2));

/** Whether a model was first shown by another page load; the first one leaves its mark. */
function isReloaded(model) {
  if (!model.get("page")) {
    model.set("page", PAGE);
    model.save_changes();
  }
  return model.get("page") !== PAGE;
}

async function render({ model, el }) {
  let hub;
  try {
    hub = await model.widget_manager.get_model(model.get("hub"));
  } catch {
    el.textContent = "The kernel that this panel belonged to is gone: run its cell again.";
    return undefined;
  }
  const store = storeOf(hub);
  const view = Math.random().toString(36).slice(2);
  const live = store.post !== null;
  const unmount = mount(el, store, {
    panels: model.get("panels"),
    folded: model.get("folded"),
    size: model.get("size"),
    freeze: () => model.send({ command: "freeze" }),
    reloaded: isReloaded(model),
  });
  if (live) store.hello(view);
  return () => {
    unmount();
    if (live && !store.gone) store.send({ bye: view });
  };
}

export const widget = { render };
