// Live: how many requests go where, how fast the answers come, what is refused, how warm the devices are.

import { Chart } from "./charts.js";
import { celsius, chip, h, millis, number, show, table } from "./dom.js";
import { listen, store } from "./store.js";

const last = (points) => points[points.length - 1];
const pick = (points, path) => points.map((point) => path(point) ?? null);
const said = (value, unit) => value === null || value === undefined ? "nothing measured" : `${number(value, 1)} ${unit}`;

export function live(view) {
  const kpis = h("div", { class: "kpis" }), refusals = h("section", { class: "card" }), heat = h("section", { class: "card" });
  const rate = new Chart("Requests", "per second",
    [{ label: "edge", colour: "--edge" }, { label: "cloud", colour: "--cloud" }, { label: "nowhere", colour: "--bad", dash: [4, 3] }],
    ([, edge, cloud]) => `edge ${said(edge.at(-1), "per second")}, cloud ${said(cloud.at(-1), "per second")}`);
  const pair = (unit) => [
    { label: "edge p50", colour: "--edge" }, { label: "edge p95", colour: "--edge-2", dash: [5, 3] },
    { label: "cloud p50", colour: "--cloud" }, { label: "cloud p95", colour: "--cloud-2", dash: [5, 3] }];
  const words = ([, a, b, c, d]) => `edge median ${said(a.at(-1), "ms")}, 95th percentile ${said(b.at(-1), "ms")}; cloud median ${said(c.at(-1), "ms")}, 95th percentile ${said(d.at(-1), "ms")}`;
  const ttft = new Chart("Time to first token", "ms", pair(), words);
  const tpot = new Chart("Time per token", "ms", pair(), words);
  show(view, h("h1", null, "Live"), kpis, h("div", { class: "grid" }, rate.element, ttft.element, tpot.element, heat, refusals));

  const draw = () => {
    const points = store.points, at = pick(points, (p) => p.at);
    rate.set([at, ...["edge", "cloud", "none"].map((tier) => pick(points, (p) => p.requests_per_s[tier]))]);
    for (const [chart, name] of [[ttft, "ttft_ms"], [tpot, "tpot_ms"]])
      chart.set([at, ...["edge", "cloud"].flatMap((tier) => [0, 1].map((n) => pick(points, (p) => p[name][tier][n])))]);
    drawNumbers(kpis, points);
    drawRefusals(refusals, points);
  };
  const drawFleet = () => drawHeat(heat, store.fleet);
  draw();
  drawFleet();
  const stop = listen((kind) => { if (kind === "live") draw(); if (kind === "fleet") drawFleet(); });
  return () => { stop(); for (const chart of [rate, ttft, tpot]) chart.close(); };
}

function drawNumbers(place, points) {
  const now = last(points), minute = points.slice(-60);
  const sum = (tier) => minute.reduce((total, point) => total + point.requests[tier], 0);
  const [edge, cloud, none] = ["edge", "cloud", "none"].map(sum), all = edge + cloud + none;
  // Each point's quantiles are of ten seconds; a quiet router keeps the newest of the last minute.
  const newest = (name, tier) => millis(minute.findLast((point) => point[name][tier][0] !== null)?.[name][tier][0]);
  const part = (value) => all > 0 ? `${Math.round(100 * value / all)} %` : "–";
  const kpi = (value, label, more) => h("div", { class: "card kpi" }, h("b", null, value), h("span", null, label), more);
  const bar = h("div", { class: "share", "aria-hidden": "true" }, [["e", edge], ["c", cloud], ["r", none]].map(([look, value]) => {
    const piece = h("i", { class: look });
    piece.style.width = all > 0 ? `${100 * value / all}%` : "0";
    return piece;
  }));
  show(place,
    kpi(number(now ? now.requests_per_s.edge + now.requests_per_s.cloud + now.requests_per_s.none : 0, 1), "requests per second"),
    kpi(`${part(edge)} / ${part(cloud)}`, "edge / cloud, last minute", bar),
    kpi(`${newest("ttft_ms", "edge")} / ${newest("ttft_ms", "cloud")}`, "median first token, edge / cloud, last minute"),
    kpi(`${newest("tpot_ms", "edge")} / ${newest("tpot_ms", "cloud")}`, "median per token, edge / cloud, last minute"),
    kpi(number(minute.reduce((total, point) => total + Object.values(point.refused).reduce((a, b) => a + b, 0), 0)), "refused, last minute"),
    kpi(number(now?.in_flight ?? 0), "in flight"));
}

function drawRefusals(place, points) {
  const counts = new Map();
  for (const point of points.slice(-300)) for (const [code, count] of Object.entries(point.refused)) counts.set(code, (counts.get(code) ?? 0) + count);
  const rows = [...counts].sort((a, b) => b[1] - a[1]).map(([code, count]) => h("tr", null, h("td", null, code), h("td", { class: "n" }, number(count))));
  show(place, h("h2", null, "Refusals"), table("By reason, last five minutes", ["reason", "requests"], rows, "Nothing was refused in the last five minutes."));
}

function drawHeat(place, fleet) {
  const warm = (fleet?.backends ?? []).filter((each) => each.tier === "edge").sort((a, b) => (b.temperature_c ?? -99) - (a.temperature_c ?? -99)).slice(0, 8);
  const rows = warm.map((each) => h("tr", { "data-backend": each.backend_id },
    h("td", { class: "n" }, each.backend_id), h("td", null, chip(each.level)), h("td", { class: "n" }, celsius(each.temperature_c)),
    h("td", { class: "n" }, `${number(each.derate_ratio * 100)} %`), h("td", { class: "n" }, each.seconds_to_throttle === null ? "–" : `in ${number(each.seconds_to_throttle)} s`)));
  show(place, h("h2", null, "Heat"), table("Warmest devices", ["device", "level", "temperature", "speed left", "next level"], rows, "No edge device reports."));
}
