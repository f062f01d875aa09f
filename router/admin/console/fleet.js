// Fleet: each backend with what it reports and what this router learned of it; drain, resume, revoke, invite.

import { post, put, remove, session } from "./api.js";
import { AROUND, Chart } from "./charts.js";
import { celsius, chip, clock, h, millis, number, show, span, table, toast } from "./dom.js";
import { ask } from "./dialog.js";
import { listen, store } from "./store.js";

export function fleet(view) {
  const notes = h("div"), cards = h("div", { class: "grid" }), devices = h("section", { class: "card" });
  show(view, h("h1", null, "Fleet"), notes, cards, h("p"), devices);
  const shown = new Map();
  const draw = () => {
    const facts = store.fleet;
    if (!facts) return;
    drawNotes(notes, facts);
    const present = new Set(facts.backends.map((each) => each.backend_id));
    for (const [id, card] of shown) if (!present.has(id)) { card.close(); card.element.remove(); shown.delete(id); }
    for (const backend of facts.backends) {
      if (!shown.has(backend.backend_id)) {
        const card = new Card(backend);
        shown.set(backend.backend_id, card);
        cards.append(card.element);
      }
      shown.get(backend.backend_id).set(backend, facts);
    }
    drawDevices(devices, facts.devices);
  };
  draw();
  const stop = listen((kind) => { if (kind === "fleet") draw(); });
  return () => { stop(); for (const card of shown.values()) card.close(); };
}

function drawNotes(place, facts) {
  const lines = [];
  if (facts.backends.length === 0) lines.push("No backend is known. Start an agent with: isthmus edge serve");
  if (facts.left_out) lines.push(`${facts.left_out} more backends are not shown.`);
  for (const each of facts.digest_mismatches) lines.push(`${each.model_id}: different weights under one name: ${each.backends.map((group) => group.join(", ")).join(" | ")}`);
  for (const each of facts.tokenizer_mismatches) lines.push(`${each.model_id}: these do not tokenize alike: ${each.backends.map((group) => group.join(", ")).join(" | ")}`);
  show(place, lines.map((line) => h("p", { class: "warn" }, line)));
}

class Card {
  constructor(backend) {
    this.head = h("div", { class: "title" });
    this.list = h("dl");
    this.models = h("p", { class: "soft mono" });
    this.buttons = h("div", { class: "row" });
    this.element = h("article", { class: "card device", "data-backend": backend.backend_id, "aria-label": backend.backend_id }, this.head, this.list, this.models);
    this.chart = null;
    if (backend.tier === "edge") {
      this.chart = new Chart("Temperature", "°C", [{ label: backend.backend_id.slice(0, 24), colour: "--warn" }],
        ([, values]) => values.length ? `now ${celsius(values.at(-1))}, highest ${celsius(Math.max(...values))}` : "not reported", AROUND);
      this.element.append(this.chart.place);
    }
    this.element.append(this.buttons);
    this.key = "";
  }

  set(backend, facts) {
    const differs = facts.digest_mismatches.some((each) => backend.models.some((model) => model.model_id === each.model_id));
    const stated = backend.models.some((model) => model.digest);
    show(this.head, h("h2", null, backend.backend_id), chip(backend.tier), chip(backend.state), backend.tier === "edge" ? chip(backend.level) : null,
      backend.drained_since_unix_s ? h("span", { class: "soft" }, `drained since ${clock(backend.drained_since_unix_s)}`) : null);
    const facts_ = [
      ["zone", backend.zone], ["breaker", chip(backend.breaker)],
      ["slots", part(backend.slots_busy, backend.slots_total, " busy")], ["queued", part(backend.queued, backend.queue_limit, "")],
      ["first token", millis(backend.ttft_ms)], ["decode", backend.decode_tokens_per_s === null ? "–" : `${number(backend.decode_tokens_per_s, 1)} tok/s`],
      ["prefill", backend.prefill_tokens_per_s === null ? "–" : `${number(backend.prefill_tokens_per_s)} tok/s`], ["in flight here", number(backend.in_flight)],
      ["last report", backend.age_ms === null ? "asked" : `${span(backend.age_ms / 1000)} ago`], ["weights", differs ? "differ from another's" : stated ? "as others'" : "digest not stated"],
    ];
    if (backend.cooling_ms) facts_.push(["rests", span(backend.cooling_ms / 1000)]);
    if (backend.tier === "edge") facts_.push(["temperature", celsius(backend.temperature_c)], ["speed left", `${number(backend.derate_ratio * 100)} %`],
      ["to throttle", backend.seconds_to_throttle === null ? "not in sight" : span(backend.seconds_to_throttle)], ["speculation", backend.speculation ?? "–"]);
    show(this.list, facts_.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
    show(this.models, backend.models.map((model) => h("span", { title: model.digest ?? "no digest stated" }, `${model.model_id}${model.context_tokens ? ` (${number(model.context_tokens)} tokens)` : ""} `)));
    if (this.chart) {
      const trace = store.traces.get(backend.backend_id) ?? [];
      this.chart.set([trace.map(([at]) => at), trace.map(([, value]) => value)]);
    }
    this.drawButtons(backend);
  }

  drawButtons(backend) {
    const key = `${backend.drained_since_unix_s} ${backend.device_id} ${session.role}`;
    if (key === this.key) return;  // a button that is replaced would lose the focus
    this.key = key;
    const may = session.role === "admin", id = encodeURIComponent(backend.backend_id);
    show(this.buttons,
      backend.drained_since_unix_s
        ? h("button", { type: "button", disabled: !may, "aria-label": `Use again: ${backend.backend_id}`, onclick: () => act(remove(`/backends/${id}/drain`), `${backend.backend_id} is used again.`) }, "Use again")
        : h("button", { type: "button", disabled: !may, "aria-label": `Drain ${backend.backend_id}`, onclick: () => act(put(`/backends/${id}/drain`), `${backend.backend_id} gets nothing new.`) }, "Drain"),
      backend.device_id ? h("button", { type: "button", disabled: !may, "aria-label": `Revoke device of ${backend.backend_id}`, onclick: () => revoke(backend.device_id, backend.backend_id) }, "Revoke device") : null,
      may ? null : h("span", { class: "soft" }, "read-only"));
  }

  close() { this.chart?.close(); }
}

// "2 of 4 busy", with what is known of it.
function part(count, total, word) {
  return `${number(count)}${total === null ? "" : ` of ${number(total)}`}${word}`;
}

function drawDevices(place, devices) {
  const key = JSON.stringify([devices, session.role]);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const may = session.role === "admin";
  const rows = devices.map((each) => h("tr", null, h("td", { class: "mono" }, each.device_id), h("td", null, each.backend_id), h("td", null, chip(each.state)),
    h("td", { class: "n" }, new Date(each.enrolled_unix_s * 1000).toLocaleString()),
    h("td", null, each.state === "active" && may ? h("button", { type: "button", "aria-label": `Revoke ${each.device_id}`, onclick: () => revoke(each.device_id, each.backend_id) }, "Revoke") : null)));
  show(place, h("h2", null, "Devices that joined"), table("Devices", ["device", "backend", "state", "since", ""], rows, "No device has joined with a token."),
    h("p"), h("button", { type: "button", disabled: !may, onclick: invite }, "Invite a device"));
}

async function act(promise, words) {
  try { await promise; toast(words); } catch (failure) { toast(failure.message); }
}

async function revoke(deviceId, backendId) {
  const sure = await ask("Revoke this device?", [`Nothing that ${deviceId} reports for ${backendId} is taken any more. This cannot be undone: the device has to join again with a new key.`], "Revoke");
  if (sure) await act(remove(`/devices/${encodeURIComponent(deviceId)}`), "The device was revoked.");
}

async function invite() {
  try {
    const { token, valid_s } = await post("/invitations", { valid_s: 3600 });
    await ask("Run this on the device", [h("pre", null, `isthmus edge join ${location.origin} --token ${token}`), `It works once, within ${span(valid_s)}, and is shown this once.`], "Done", false);
  } catch (failure) { toast(failure.message); }
}
