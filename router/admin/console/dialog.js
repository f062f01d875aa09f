// One dialog of the browser's own: it keeps the focus inside, closes with Escape, and gives the focus back.

import { h, show } from "./dom.js";

const dialog = () => document.getElementById("dialog");

export function open(title, ...content) {
  const place = dialog();
  show(place, h("div", { class: "sheet" },
    h("div", { class: "title" }, h("h2", { id: "dialog-title" }, title), h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => place.close() }, "✕")),
    ...content));
  if (!place.open) place.showModal();
}

export function ask(title, content, yes, refusable = true) {
  return new Promise((resolve) => {
    const place = dialog();
    const end = (value) => () => { place.returnValue = value ? "yes" : "no"; place.close(); };
    open(title, content.map((each) => typeof each === "string" ? h("p", null, each) : each),
      h("div", { class: "row" }, h("button", { type: "button", class: "main", onclick: end(true) }, yes), refusable ? h("button", { type: "button", onclick: end(false) }, "Leave it") : null));
    place.returnValue = "no";
    place.addEventListener("close", () => resolve(place.returnValue === "yes"), { once: true });
  });
}
