// Starts the console: signs in, shows the view that the address names, keeps the connection.

import { session, signIn, signOut, whoAmI } from "./api.js";
import { decisions } from "./decisions.js";
import { h, show } from "./dom.js";
import { fleet } from "./fleet.js";
import { live } from "./live.js";
import { playground } from "./playground.js";
import { policy } from "./policy.js";
import { connect, disconnect, listen, store } from "./store.js";

const VIEWS = { live, fleet, decisions, policy, playground };
const view = document.getElementById("view"), nav = document.getElementById("nav"), link = document.getElementById("link");
let leave = () => {};

function route() {
  if (!session.signed_in) return;
  const name = location.hash.replace("#/", "") in VIEWS ? location.hash.replace("#/", "") : "live";
  leave();
  for (const each of nav.children) {
    if (each.getAttribute("href") === `#/${name}`) each.setAttribute("aria-current", "page"); else each.removeAttribute("aria-current");
  }
  document.title = `${name[0].toUpperCase()}${name.slice(1)} · Isthmus`;
  show(view);
  leave = VIEWS[name](view) ?? (() => {});
}

function askForKey(words) {
  leave();
  leave = () => {};
  disconnect();
  nav.hidden = true;
  document.getElementById("leave").hidden = true;
  document.getElementById("who").textContent = "";
  link.textContent = "";
  const key = h("input", { type: "password", name: "key", autocomplete: "current-password", required: true, spellcheck: "false" });
  const said = h("p", { class: "bad", role: "alert" }, words ?? "");
  const submit = async (event) => {
    event.preventDefault();
    try { await signIn(key.value.trim()); await enter(); } catch (failure) { said.textContent = failure.message; key.select(); }
  };
  show(view, h("section", { class: "card signin" }, h("h1", null, "Sign in"), h("form", { onsubmit: submit }, h("input", { name: "username", autocomplete: "username", value: "console", hidden: true }),
    h("label", null, "API key with the scope admin or admin:read", key), h("p"), h("button", { type: "submit", class: "main" }, "Sign in")), said));
  key.focus();
}

async function enter() {
  nav.hidden = false;
  document.getElementById("leave").hidden = !session.keys_required;
  document.getElementById("who").textContent = session.key ? `${session.key} (${session.role})` : "";
  await connect();
  route();
}

async function start() {
  try {
    await whoAmI();
    if (session.signed_in) await enter(); else askForKey();
  } catch (failure) { askForKey(failure.message); }
}

document.getElementById("leave").addEventListener("click", async () => {
  try { await signOut(); } finally { session.signed_in = false; askForKey(); }
});
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  window.dispatchEvent(new Event("isthmus:theme"));
});
window.addEventListener("hashchange", () => { route(); window.scrollTo(0, 0); view.focus({ preventScroll: true }); });
window.addEventListener("isthmus:signed-out", () => { if (session.signed_in) { session.signed_in = false; askForKey("The sign-in has ended."); } });
window.addEventListener("isthmus:lost", () => setTimeout(() => { if (session.signed_in) start(); }, 2000));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("isthmus:theme")));
listen((kind) => { if (kind === "link") link.textContent = store.connected ? "live" : "reconnecting…"; });
if (localStorage.getItem("theme")) document.documentElement.dataset.theme = localStorage.getItem("theme");
start();
