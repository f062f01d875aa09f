// What the router told so far, and who wants to hear of changes.

import { get } from "./api.js";

const POINTS = 900, ROWS = 500, TRACE = 450;
export const store = { points: [], fleet: null, decisions: [], traces: new Map(), connected: false, missed: 0 };
const listeners = new Set();
let source = null;

export function listen(hear) { listeners.add(hear); return () => listeners.delete(hear); }
function tell(kind, value) { for (const hear of listeners) hear(kind, value); }

export async function connect() {
  disconnect();
  const [live, fleet] = await Promise.all([get("/live"), get("/fleet")]);
  const { decisions } = await get("/decisions?limit=100");
  store.points = live.points;
  store.decisions = decisions;
  store.traces = new Map(Object.entries(fleet.temperature_traces));
  takeFleet(fleet);
  for (const kind of ["live", "fleet", "decisions"]) tell(kind);
  source = new EventSource("/admin/v1/events");
  source.onopen = () => { store.connected = true; tell("link"); };
  source.onerror = () => {
    store.connected = false;
    tell("link");
    if (source?.readyState === EventSource.CLOSED) window.dispatchEvent(new Event("isthmus:lost"));
  };
  on("live", (point) => { store.points.push(point); store.points.splice(0, store.points.length - POINTS); });
  on("fleet", takeFleet);
  on("decision", (row) => { store.decisions.unshift(row); store.decisions.splice(ROWS); });
  on("missed", ({ decisions: count }) => { store.missed += count; });
  source.addEventListener("signed_out", () => window.dispatchEvent(new Event("isthmus:signed-out")));
}

export function disconnect() { source?.close(); source = null; store.connected = false; }

function on(kind, take) {
  source.addEventListener(kind, (event) => {
    const value = JSON.parse(event.data);
    take(value);
    tell(kind, value);
  });
}

function takeFleet(fleet) {
  const now = Date.now() / 1000;
  for (const backend of fleet.backends) {
    if (backend.temperature_c === null) continue;
    const trace = store.traces.get(backend.backend_id) ?? [];
    if (trace.length === 0 || now - trace[trace.length - 1][0] >= 1 || trace[trace.length - 1][1] !== backend.temperature_c) {
      trace.push([now, backend.temperature_c]);
      trace.splice(0, trace.length - TRACE);
    }
    store.traces.set(backend.backend_id, trace);
  }
  store.fleet = fleet;
}
