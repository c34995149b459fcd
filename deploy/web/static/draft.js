// Says, while a subscription is typed, how the topology reads it, and how many of the newest messages it would have matched.

import { getFrom } from "/static/api.js";
import { count, el, show } from "/static/dom.js";
import { field, path } from "/static/dskype/page.js";

const PAUSE_MS = 300; // in which nothing is typed, before the server is asked

/** Return a text with the character at a position marked; positions count characters from 1. */
function marked(text, position) {
  const characters = [...text];
  const at = Math.min(position - 1, characters.length);
  return el("pre", {}, characters.slice(0, at).join(""), el("mark", {}, characters[at] ?? " "), characters.slice(at + 1).join(""));
}

function answer({ error, position, inside, matched, looked, since_ms, examples, text }, { expression = "", where = "", type }) {
  const given = type === "boolean" ? expression : where;
  if (inside !== undefined && error !== undefined) return el("p", {}, `${count(inside)} of the ${count(looked)} newest messages are there. Which of them are wanted? Enter an expression.`);
  if (error !== undefined) return [el("p", { class: "bad" }, error), ...(position ? [marked(given, position)] : [])];
  const what = { topk: "could have entered the list", threshold: "could have reached the score" }[type] ?? "would have matched";
  const since = since_ms === null ? "" : `, which came since ${new Date(since_ms).toLocaleString("sv-SE")}`;
  return [
    ...(text && text !== given ? [el("p", {}, "It is read as ", el("code", {}, text))] : []),
    el("p", {}, looked ? `${count(matched)} of the ${count(looked)} newest messages ${what}${since}.` : "There are no messages yet to try it on."),
    ...(examples.length ? [el("ul", {}, examples.map((message) => el("li", {}, `${message.message_id}: ${message.text}`)))] : []),
  ];
}

/** Return in a few words how many messages there are. */
function brief({ matched, inside, looked }) {
  if (!looked) return "no messages yet";
  const there = inside === undefined ? "" : `${count(inside)} there`;
  const all = `of the ${count(looked)} newest`;
  return matched === undefined ? `${there} ${all}` : inside === undefined || inside === looked ? `${count(matched)} ${all}` : `${count(matched)} match, ${there}, ${all}`;
}

export class Draft {
  /**
   * @param described returns the subscription that the form describes; null while something is missing.
   * @param answered called with a few words about how many messages it would have matched, or "".
   */
  constructor(described, answered = () => {}) {
    Object.assign(this, { described, answered, asked: 0 });
  }

  /** Note that the form has changed. */
  changed() {
    this.asked += 1; // an answer that is on its way is about something else
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), PAUSE_MS);
  }

  async look() {
    const fields = this.described();
    for (const name of ["expression", "where"]) field(name).removeAttribute("aria-invalid");
    if (fields === null) {
      this.answered("");
      return show("draft");
    }
    const number = this.asked;
    const slow = setTimeout(() => number === this.asked && this.answered("counting..."), PAUSE_MS);
    const found = await getFrom(path("draft", { fields: JSON.stringify(fields) })).catch(({ message }) => ({ error: message, position: null }));
    clearTimeout(slow);
    if (number !== this.asked) return;
    if (found.position) field(fields.type === "boolean" ? "expression" : "where").setAttribute("aria-invalid", "true");
    show("draft", [answer(found, fields)].flat());
    this.answered(found.looked === undefined ? "" : brief(found));
  }
}

/** Return a comparison of an attribute as an expression; a value that may be anything is put in quotes. */
export function comparison({ name, type }, sign, value) {
  if (sign === "exists") return `exists(${name})`;
  const quoted = (one) => (type === "number" || type === "boolean" || (type === "time" && /^-?\d+$/.test(one)) ? one : `"${one}"`);
  if (sign !== "IN") return `${name} ${sign} ${quoted(value.trim())}`;
  return `${name} IN (${value.split(",").map((one) => quoted(one.trim())).join(", ")})`;
}

/** Return an expression and another one joined by AND. */
export const both = (one, other) => (one.trim() ? `${/\bor\b/i.test(one) ? `(${one.trim()})` : one.trim()} AND ${other}` : other);
