// Builds elements out of text and attributes. Nothing here or elsewhere turns a string into markup.

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name === "class" ? "class" : name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const show = (element, ...children) => element.replaceChildren(...children.flat(3).filter(Boolean));

export const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
export const millis = (value) => value === null || value === undefined ? "–" : value >= 10000 ? `${number(value / 1000, 1)} s` : `${number(value, value < 10 ? 1 : 0)} ms`;
export const celsius = (value) => value === null || value === undefined ? "–" : `${number(value, 1)} °C`;
export const clock = (unixSeconds) => unixSeconds ? new Date(unixSeconds * 1000).toLocaleTimeString([], { hour12: false }) : "–";
export const span = (seconds) => seconds < 90 ? `${number(seconds)} s` : seconds < 5400 ? `${number(seconds / 60)} min` : `${number(seconds / 3600, 1)} h`;

// Colour never stands alone: each state has a mark and a word too.
const LOOKS = {
  nominal: ["ok", "●"], warm: ["warn", "◐"], hot: ["bad", "▲"], critical: ["bad", "■"], unknown: ["soft", "?"],
  ready: ["ok", "●"], starting: ["soft", "…"], scaled_to_zero: ["soft", "○"], draining: ["warn", "◌"], failed: ["bad", "✕"],
  closed: ["ok", "●"], half_open: ["warn", "◐"], open: ["bad", "✕"],
  public: ["ok", "○"], personal: ["warn", "◐"], secret: ["bad", "■"],
  edge: ["edge", "▪"], cloud: ["cloud", "☁"], ok: ["ok", "✓"], active: ["ok", "●"], revoked: ["bad", "✕"],
};
export function chip(word) {
  if (word === null || word === undefined) return h("span", { class: "soft" }, "–");
  const [look, mark] = LOOKS[word] ?? ["soft", "·"];
  return h("span", { class: `chip ${look}`, "data-mark": mark }, String(word).replaceAll("_", " "));
}

export function table(caption, columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "soft" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", null, caption),
      h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, rows)));
}

let timer = 0;
export function toast(words) {
  const place = document.getElementById("toast");
  place.textContent = words;
  clearTimeout(timer);
  timer = setTimeout(() => { place.textContent = ""; }, 6000);
}
