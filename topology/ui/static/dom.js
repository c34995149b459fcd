// Builds what a page shows. Text is always text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Return an element with attributes (`onclick` is a listener) and children, which are nodes or texts. */
export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** Return an element of an SVG picture. */
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Replace the content of the element with an id. */
export const show = (id, ...children) => document.getElementById(id).replaceChildren(...children.flat());

export const link = (href, text) => el("a", { href }, text);

/** Return a term; what it means appears when the mouse is on it, or the focus. */
export const term = (text, what) => (what ? el("abbr", { title: what, tabindex: "0" }, text) : text);

/**
 * Return a table.
 * @param columns list of [heading, row => cell, class, what the heading means]; a cell is a node, a text, a number, or a list of these.
 */
export function table(columns, rows, empty = "none") {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  const heads = columns.map(([heading, , kind, what]) => el("th", { class: kind, scope: "col" }, term(heading, what)));
  const body = rows.map((row) => fillRow(el("tr", {}, columns.map(([, , kind]) => el("td", { class: kind }))), columns, row));
  return el("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": labelOf(rows) }, el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body)));
}

const labelOf = (rows) => `table of ${rows.length} rows`;

function fillRow(line, columns, row) {
  columns.forEach(([, cell], i) => line.cells[i].replaceChildren(...[cell(row)].flat().map(asNode)));
  return line;
}

/** A table of the newest rows, each an object, newest first. Lines that are there stay: a browser keeps some memory of each table that is made anew. */
export class NewestTable {
  /** @param id of the element that has it. */
  constructor(id) {
    Object.assign(this, { box: document.getElementById(id), first: null, heads: "" });
  }

  /** Show rows: those before them, without some of the oldest, behind new ones; see {@link table}. */
  show(columns, rows, empty) {
    const body = this.box.querySelector("tbody");
    const heads = columns.map(([heading]) => heading).join();
    if (body && heads === this.heads && rows.length >= body.rows.length) {
      const fresh = rows.indexOf(this.first);
      for (const row of rows.slice(0, fresh < 0 ? rows.length : fresh).reverse()) {
        const line = body.rows.length < rows.length ? body.rows[0].cloneNode(true) : body.lastElementChild;
        body.prepend(fillRow(line, columns, row));
      }
      this.box.firstElementChild.setAttribute("aria-label", labelOf(rows));
    } else this.box.replaceChildren(table(columns, rows, empty));
    Object.assign(this, { first: rows[0] ?? null, heads });
  }
}

function asNode(value) {
  if (value instanceof Node) return value;
  if (value === null || value === undefined) return "";
  return typeof value === "number" ? count(value) : String(value);
}

const grouped = new Intl.NumberFormat("en-US");

/** Return a number with its digits in groups. */
export const count = (n) => grouped.format(n);

/** Return a rate with three significant digits. */
export const rate = (n) => (n >= 100 ? count(Math.round(n)) : String(Number(n.toPrecision(3))));

/** Return a latency that the API gives with three decimals, and a dash where there was nothing to measure. */
export const latency = (text, times) => (times ? text : "–");

/** Return terms, their values and perhaps what they mean as a definition list. */
export const facts = (rows) => el("dl", { class: "facts" }, rows.map(([name, value, what]) => el("div", {}, el("dt", {}, term(name, what)), el("dd", {}, asNode(value)))));

/** Return a time of the epoch, in seconds, as local date and time. */
export const moment = (secs) => new Date(secs * 1000).toLocaleString("sv-SE");
