// Decisions: the newest requests, filtered; one opens the whole explanation, every rejection, and a way to correct it.

import { get, post, session } from "./api.js";
import { open } from "./dialog.js";
import { chip, clock, h, millis, show, table, toast } from "./dom.js";
import { listen, store } from "./store.js";

const FILTERS = [
  ["class", ["public", "personal", "secret", "unknown"]],
  ["tier", ["edge", "cloud"]],
  ["outcome", ["ok", "client_error", "capacity", "backend_error", "broken", "client_left", "error"]],
];
const REASONS = ["preferred_tier", "privacy_requires_edge", "policy_rule", "route_override", "edge_unavailable", "cloud_unavailable", "edge_too_slow",
  "cloud_too_slow", "fastest", "trial", "blocked", "privacy_unavailable", "no_capacity", "model_not_found", "context_length_exceeded", "feature_not_served"];

const COLUMNS = ["time", "class", "action", "tier", "backend", "reason", "model", "outcome", "first token", "total"];
const SHOWN = 200;

export function decisions(view) {
  const body = h("tbody"), empty = h("p", { class: "soft" }, "No request is like that."), filters = new Map();
  const list = h("section", { class: "card" }, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Decisions" },
    h("table", null, h("caption", null, "Newest first; choose one to see why"), h("thead", null, h("tr", null, COLUMNS.map((name) => h("th", { scope: "col" }, name)))), body)), empty);
  let paused = false, arrived = [], flush = 0;
  const filter = (name, words) => {
    const select = h("select", { name, onchange: fetchRows }, h("option", { value: "" }, "any"), words.map((word) => h("option", { value: word }, word)));
    filters.set(name, select);
    return h("label", null, name, select);
  };
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (!paused) fetchRows();
  } }, "Pause");
  show(view, h("h1", null, "Decisions"),
    h("form", { class: "row", onsubmit: (event) => event.preventDefault() }, FILTERS.map(([name, words]) => filter(name, words)), filter("reason", REASONS), pause), list);

  const draw = (rows) => { show(body, rows.slice(0, SHOWN).map(row)); empty.hidden = rows.length > 0; };
  async function fetchRows() {
    const asked = new URLSearchParams([...filters].filter(([, select]) => select.value).map(([name, select]) => [name, select.value]));
    asked.set("limit", "200");
    try { draw((await get(`/decisions?${asked}`)).decisions); } catch (failure) { toast(failure.message); }
  }
  const fits = (each) => [...filters].every(([name, select]) => !select.value || each[name] === select.value || (name === "reason" && each.code === select.value));
  draw(store.decisions);
  // New rows come in above, a few times a second at most; those that are there stay, and with them the focus.
  const add = () => {
    flush = 0;
    body.prepend(...arrived.splice(0).reverse().slice(0, SHOWN).map(row));
    while (body.rows.length > SHOWN) body.lastElementChild.remove();
    empty.hidden = body.rows.length > 0;
  };
  const stop = listen((kind, each) => {
    if (kind === "decisions") fetchRows();
    if (kind !== "decision" || paused || !fits(each)) return;
    arrived.push(each);
    flush ||= setTimeout(add, 250);
  });
  return () => { stop(); clearTimeout(flush); };
}

function row(each) {
  return h("tr", { class: "pick", "data-decision": each.decision_id, onclick: () => explainOne(each.decision_id) },
    h("td", { class: "n" }, h("button", { type: "button", class: "plain", "aria-label": `Explain the request of ${clock(each.at)}`, onclick: (event) => { event.stopPropagation(); explainOne(each.decision_id); } }, clock(each.at))),
    h("td", null, chip(each.class)), h("td", null, each.action ?? "–"), h("td", null, chip(each.tier)), h("td", null, each.backend ?? "–"),
    h("td", null, (each.reason ?? each.code ?? "–") + (each.rule ? ` (${each.rule})` : "")), h("td", null, each.model ?? "–"),
    h("td", null, each.outcome === "ok" ? chip("ok") : `${each.outcome} ${each.status ?? ""}`), h("td", { class: "n" }, millis(each.ttft_ms)), h("td", { class: "n" }, millis(each.total_ms)));
}

export async function explainOne(decisionId) {
  let found;
  try { found = await get(`/decisions/${encodeURIComponent(decisionId)}`); } catch (failure) { toast(failure.message); return; }
  const { record, words, same } = found, decision = record.decision;
  open("Why it went there",
    h("p", { class: "mono soft" }, `${record.decision_id} · ${clock(record.at)} · ${record.request_id}`),
    h("ol", { id: "words" }, words.map((line) => h("li", null, line))),
    words.length === 0 ? h("p", null, `It ended before it was decided: ${record.code ?? record.outcome}.`) : null,
    same === null ? null : h("p", { class: "soft" }, same ? "Decided again from the record, the answer is the same." : "Decided again from the record, the answer differs."),
    decision ? candidates(decision) : null, attempts(record.attempts), findings(record.entities), feedback(record));
}

function candidates(decision) {
  const rows = [
    ...decision.candidates.map((each, n) => h("tr", null, h("td", null, each.backend), h("td", null, each.zone), h("td", { class: n ? "" : "ok" }, n ? `candidate ${n + 1}` : "first choice"), h("td", { class: "n" }, millis(each.predicted_ttft_ms)), h("td", { class: "n" }, millis(each.predicted_tpot_ms)))),
    ...decision.rejected.map((each) => h("tr", null, h("td", null, each.backend), h("td", null, each.zone), h("td", { class: "bad" }, `no: ${each.reason}`), h("td", null, ""), h("td", null, ""))),
  ];
  return h("div", { id: "candidates" }, table("Every backend, and its verdict", ["backend", "zone", "verdict", "first token", "per token"], rows, "No backend was known."));
}

function attempts(list) {
  const rows = list.map((each) => h("tr", null, h("td", null, each.backend), h("td", null, chip(each.tier)), h("td", null, each.outcome ?? "running"), h("td", null, each.status ?? "–"), h("td", { class: "n" }, millis(each.ttft_ms)), h("td", { class: "n" }, millis(each.duration_ms)), h("td", { class: "n" }, each.completion_tokens ?? "–")));
  return table("Attempts", ["backend", "tier", "outcome", "status", "first token", "took", "tokens"], rows, "It was sent nowhere.");
}

export function findings(list) {
  const rows = list.map((each) => h("tr", null, h("td", null, each.kind), h("td", { class: "mono" }, each.position), h("td", { class: "n" }, `${each.start}–${each.end}`)));
  return table("What was found, by place; never what it says", ["kind", "where", "characters"], rows, "Nothing personal or secret was found.");
}

function feedback(record) {
  if (record.class_found === null) return null;
  const right = h("select", { id: "right-class" }, ["public", "personal", "secret"].map((each) => h("option", { value: each }, each)));
  right.value = record.class_found === "unknown" ? "personal" : record.class_found;
  const said = h("p", { role: "status", id: "feedback-said" });
  const send = async (event) => {
    event.preventDefault();
    try {
      await post(`/decisions/${encodeURIComponent(record.decision_id)}/feedback`, { class: right.value });
      said.textContent = `Kept: ${record.class_found} should have been ${right.value}. It changes nothing by itself; see isthmus router policy propose.`;
    } catch (failure) { said.textContent = failure.message; }
  };
  return h("form", { class: "row", onsubmit: send }, h("label", null, "The class should have been", right), h("button", { type: "submit", disabled: session.role !== "admin" }, "Keep this correction"), said);
}
