// The switches that playground and policy share: model, route, privacy.

import { h } from "./dom.js";
import { listen, store } from "./store.js";

const names = () => [...new Set((store.fleet?.backends ?? []).flatMap((each) => each.models.map((model) => model.model_id)))].sort();

export function modelPicker() {
  const select = h("select", { name: "model" });
  const draw = () => {
    const found = names(), chosen = select.value;
    if (found.join("\n") === [...select.options].map((each) => each.value).join("\n")) return;
    select.replaceChildren(...found.map((name) => h("option", { value: name }, name)));
    if (found.includes(chosen)) select.value = chosen;
  };
  draw();
  const stop = listen((kind) => { if (kind === "fleet") draw(); });
  return { element: h("label", null, "model", select), value: () => select.value || "none", close: stop };
}

function picker(label, words) {
  const select = h("select", { name: label }, words.map(([value, word]) => h("option", { value }, word)));
  return { element: h("label", null, label, select), value: () => select.value };
}
export const routePicker = () => picker("route", [["auto", "as policy says"], ["edge", "edge only"], ["cloud", "cloud only"]]);
export const privacyPicker = () => picker("privacy", [["", "as scanned"], ["public", "public"], ["personal", "personal"], ["secret", "secret"]]);

export function steering(route, privacy) {
  const headers = { "X-Isthmus-Route": route.value() };
  if (privacy.value()) headers["X-Isthmus-Privacy"] = privacy.value();
  return headers;
}
