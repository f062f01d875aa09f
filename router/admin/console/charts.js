// Line charts over time: uPlot with the page's colours, and in words for those who cannot see them.

import uPlot from "./vendor/uplot.js";
import { h } from "./dom.js";

// From nothing to a little above the most, for what is counted; a window around the values, for temperatures.
export const FROM_ZERO = (_, least, most) => [Math.min(0, least ?? 0), Math.max(most ?? 1, 1e-6) * 1.1 || 1];
export const AROUND = (_, least, most) => [Math.floor((least ?? 20) - 5), Math.ceil((most ?? 80) + 5)];
// Up to the newest point, and a quarter of a minute at least: the library gives one point alone a width of years.
const LATEST = (plot) => { const [at] = plot.data, end = at?.at(-1) ?? Date.now() / 1000; return [Math.min(at?.[0] ?? end, end - 15), end]; };
const HOURS = [[3600 * 24, "{YYYY}-{MM}-{DD}"], [3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(([step, form]) => [step, form, null, null, null, null, null, null, 1]);

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  // `series`: [{label, colour: "--edge", dash?}]; `unit` stands at the axis; `words(data)` says what is to be seen.
  constructor(title, unit, series, words, range = FROM_ZERO) {
    this.range = range;
    this.series = series;
    this.unit = unit;
    this.words = words;
    this.place = h("div", { class: "plot", role: "img", "aria-label": title });
    this.element = h("section", { class: "card" }, h("h2", null, `${title} (${unit})`), this.place);
    this.title = title;
    this.plot = null;
    this.data = [[], ...series.map(() => [])];
    this.observer = new ResizeObserver(() => this.plot?.setSize({ width: this.width(), height: 170 }));
    this.observer.observe(this.place);
    this.onTheme = () => this.redraw();
    window.addEventListener("isthmus:theme", this.onTheme);
  }

  width() { return Math.max(200, this.place.clientWidth); }

  redraw() { this.plot?.destroy(); this.plot = null; this.set(this.data); }

  set(data) {
    this.data = data;
    this.place.setAttribute("aria-label", `${this.title}: ${this.words(data)}`);
    if (this.plot) { this.plot.setData(data); return; }
    if (!this.place.isConnected) return;
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    this.plot = new uPlot({
      width: this.width(), height: 170, cursor: { drag: { x: false, y: false } },
      legend: { live: false }, scales: { x: { range: LATEST }, y: { range: this.range } },
      axes: [{ ...axis, values: HOURS, space: 70, size: 26 }, { ...axis, size: 50 }],
      series: [{ value: (_, at) => at ? new Date(at * 1000).toLocaleTimeString([], { hour12: false }) : "–" }, ...this.series.map((each) => ({
        label: each.label, stroke: colour(each.colour), width: 2, dash: each.dash, spanGaps: false, points: { show: false },
        value: (_, value) => value === null || value === undefined ? "–" : `${Math.round(value * 10) / 10}`,
      }))],
    }, data, this.place);
  }

  close() {
    this.observer.disconnect();
    window.removeEventListener("isthmus:theme", this.onTheme);
    this.plot?.destroy();
    this.plot = null;
  }
}
