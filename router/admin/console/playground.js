// Playground: a chat through the router as any client has it, with where each answer came from, why, and how fast.

import { chat, session } from "./api.js";
import { explainOne } from "./decisions.js";
import { chip, h, millis, number, show } from "./dom.js";
import { modelPicker, privacyPicker, routePicker, steering } from "./pickers.js";

export function playground(view) {
  const turns = [], log = h("div", { class: "chat", role: "log", "aria-live": "polite", "aria-label": "Conversation", tabindex: "0" });
  const model = modelPicker(), route = routePicker(), privacy = privacyPicker();
  const text = h("textarea", { name: "message", required: true, placeholder: "Ask something", onkeydown: (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  } });
  const most = h("input", { name: "max_tokens", type: "number", min: "1", max: "4096", value: "256" });
  const send = h("button", { type: "submit", class: "main" }, "Send"), stop = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Stop");
  const clear = h("button", { type: "button", onclick: () => { turns.length = 0; show(log); } }, "New conversation");
  let running = null;
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); if (!running) say(); } },
    h("label", null, "Message", text), h("div", { class: "row" }, model.element, route.element, privacy.element, h("label", null, "most tokens", most), send, stop, clear));
  show(view, h("h1", null, "Playground"), session.may_infer ? null : h("p", { class: "warn" }, "This key may not send requests: it lacks the scope inference."), h("section", { class: "card" }, log, form));

  async function say() {
    const content = text.value;
    turns.push({ role: "user", content });
    log.append(h("div", { class: "said user" }, content));
    text.value = "";
    const answer = h("span"), facts = h("div", { class: "facts" }), place = h("div", { class: "said assistant" }, answer, facts);
    log.append(place);
    running = new AbortController();
    send.disabled = true;
    stop.hidden = false;
    let whole = "";
    try {
      const known = await chat({ model: model.value(), messages: turns, max_tokens: Number(most.value) || 256 }, steering(route, privacy), (piece) => {
        whole += piece;
        answer.textContent = whole;
        log.scrollTop = log.scrollHeight;
      }, running.signal);
      turns.push({ role: "assistant", content: whole });
      tell(facts, known);
    } catch (failure) {
      turns.pop();
      if (failure.name !== "AbortError") answer.append(h("p", { class: "bad" }, failure.message));
      if (failure.facts) tell(facts, failure.facts);
    }
    running = null;
    send.disabled = false;
    stop.hidden = true;
    log.scrollTop = log.scrollHeight;
    text.focus();
  }
  return () => { running?.abort(); model.close(); };
}

function tell(place, known) {
  const perToken = known.tokens > 1 && known.total_ms && known.first_ms ? (known.total_ms - known.first_ms) / (known.tokens - 1) : null;
  show(place, chip(known.tier), known.backend ? h("span", { class: "chip" }, known.backend) : null, chip(known.class), known.reason ? h("span", { class: "chip reason" }, known.reason) : null,
    known.first_ms ? h("span", { class: "chip" }, `first token ${millis(known.first_ms)}`) : null, perToken ? h("span", { class: "chip" }, `${number(1000 / perToken, 1)} tok/s`) : null,
    known.finish === "length" ? h("span", { class: "chip" }, "cut at the limit") : null,
    known.decision_id ? h("button", { type: "button", onclick: () => explainOne(known.decision_id) }, "Why?") : null);
}
