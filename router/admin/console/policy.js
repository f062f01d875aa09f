// Policy: what is in force, and what would happen to a text. The text is scanned, sent nowhere and kept nowhere.

import { get, post } from "./api.js";
import { findings } from "./decisions.js";
import { chip, h, millis, show, table, toast } from "./dom.js";
import { modelPicker, routePicker, privacyPicker, steering } from "./pickers.js";

export function policy(view) {
  const inForce = h("section", { class: "card" }), result = h("div", { role: "status", id: "verdict" });
  const text = h("textarea", { name: "text", required: true, placeholder: "Please write to maria.lopez@example.com" });
  const model = modelPicker(), route = routePicker(), privacy = privacyPicker();
  const tryIt = async (event) => {
    event.preventDefault();
    try {
      const body = { model: model.value(), messages: [{ role: "user", content: text.value }] };
      drawVerdict(result, await post("/policy/try", body, steering(route, privacy)));
    } catch (failure) { show(result, h("p", { class: "bad" }, failure.message)); }
  };
  show(view, h("h1", null, "Policy"), h("div", { class: "grid" },
    h("section", { class: "card" }, h("h2", null, "Try a text"), h("form", { onsubmit: tryIt },
      h("label", null, "What a user would write", text), h("div", { class: "row" }, model.element, route.element, privacy.element, h("button", { type: "submit", class: "main" }, "What would happen?"))),
      h("p", { class: "soft" }, "The text is scanned and decided, sent to no backend, and not recorded."), result),
    inForce));
  const load = async () => {
    try { drawPolicy(inForce, await get("/policy")); } catch (failure) { toast(failure.message); }
  };
  load();
  const timer = setInterval(load, 5000);
  return () => { clearInterval(timer); model.close(); };
}

function drawPolicy(place, found) {
  const key = JSON.stringify(found);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const { rules = [], actions = {}, ...rest } = found.policy;
  show(place, h("h2", null, "In force"), h("p", { class: "mono", id: "digest" }, found.digest), h("p", { class: "soft" }, found.file ? `from ${found.file}` : "from the settings; there is no policy file"),
    found.refused ? h("p", { class: "bad", role: "alert" }, `The file as it is now was refused: ${found.refused}`) : null,
    table("Action by class", ["class", "action"], Object.entries(actions).map(([name, action]) => h("tr", null, h("td", null, chip(name)), h("td", null, action))), "None."),
    h("p"),
    table("Rules; the first that matches acts", ["rule", "matches", "does"], rules.map((rule) => h("tr", null, h("td", null, rule.name), h("td", { class: "mono" }, JSON.stringify(rule.match)), h("td", { class: "mono" }, JSON.stringify(rule.act)))), "There are no rules: class, mode and objective decide."),
    h("details", null, h("summary", null, "Everything else"), h("pre", null, JSON.stringify(rest, null, 2))));
}

function drawVerdict(place, answer) {
  const { decision, classification, words } = answer;
  const rows = [
    ...decision.candidates.map((each, n) => h("tr", null, h("td", null, each.backend), h("td", null, each.zone), h("td", null, n ? `candidate ${n + 1}` : "first choice"), h("td", { class: "n" }, millis(each.predicted_ttft_ms)))),
    ...decision.rejected.map((each) => h("tr", null, h("td", null, each.backend), h("td", null, each.zone), h("td", { class: "bad" }, `no: ${each.reason}`), h("td", null, ""))),
  ];
  show(place, h("div", { class: "facts" }, chip(decision.class), chip(decision.action), chip(decision.candidates[0]?.zone === "cloud" ? "cloud" : decision.candidates.length ? "edge" : null), h("span", { class: "chip" }, decision.reason)),
    h("ol", null, words.map((line) => h("li", null, line))), table("Backends", ["backend", "zone", "verdict", "first token"], rows, "No backend is known."), h("p"), findings(classification.entities));
}
