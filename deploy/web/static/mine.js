// The subscriptions that this browser has registered or followed: how they are, and the last result of each.

import { getFrom, postTo, token } from "/static/api.js";
import { el, show } from "/static/dom.js";
import { connection, path, renewing, Stream, topology } from "/static/dskype/page.js";
import { PAUSED, forget, pause, paused, resume } from "/static/dskype/paused.js";
import { words } from "/static/dskype/results.js";

const MOST = 50;
const AGO = [[60_000, 1000, "s"], [3_600_000, 60_000, "min"], [86_400_000, 3_600_000, "h"], [Infinity, 86_400_000, "d"]];

/** Return how long ago a time was, in words. */
function ago(ms) {
  const past = Math.max(0, Date.now() - ms);
  const [, unit, name] = AGO.find(([below]) => past < below);
  return `${Math.floor(past / unit)} ${name} ago`;
}

export class Mine {
  /** @param act `follow(id)`, `edit(id, fields)`, `removed(id)` and `problem(error)`. */
  constructor(act) {
    Object.assign(this, { act, known: new Map(), last: new Map(), chosen: null, connection: "connecting", stream: null });
    this.render = renewing(() => this.#show());
    setInterval(() => this.#times(), 5000);
    document.addEventListener("visibilitychange", () => this.#follow());
  }

  get #key() {
    return `dskype.mine.${topology()}`;
  }

  get ids() {
    try {
      return JSON.parse(localStorage.getItem(this.#key) ?? "[]").filter((id) => typeof id === "string");
    } catch {
      return []; // someone else wrote it
    }
  }

  #keep(ids) {
    localStorage.setItem(this.#key, JSON.stringify(ids.slice(0, MOST)));
  }

  /** Read how the subscriptions are, and follow their results. */
  async open() {
    const { ids } = this;
    if (ids.length) {
      const query = ids.map((id) => `&id=${encodeURIComponent(id)}`).join("");
      const { subscriptions } = await getFrom(path("subscriptions", { limit: 500 }) + query);
      this.known = new Map(subscriptions.map((one) => [one.id, one]));
      for (const id of this.known.keys()) forget(id); // somebody has registered it again
      this.#keep(ids.filter((id) => this.known.has(id) || paused().has(id)));
    }
    this.#follow();
    this.render();
  }

  /** Note that a subscription is one of ours, and the one that is chosen. */
  choose(id, fields) {
    this.chosen = id;
    if (id !== null && fields) {
      forget(id);
      this.known.set(id, { ...fields, id });
      const before = this.ids;
      this.#keep([id, ...before.filter((one) => one !== id)]);
      if (!before.includes(id)) this.#follow();
    }
    this.render();
  }

  #follow() {
    this.stream?.close();
    this.stream = null;
    const { ids } = this;
    if (!ids.length || document.hidden) return;
    const query = ids.map((id) => `&sub=${encodeURIComponent(id)}`).join("");
    const note = (id, fields) => {
      this.known.set(id, { ...this.known.get(id), ...fields });
      this.render();
    };
    const listeners = {
      result: (result) => {
        this.last.set(result.subscription, result);
        this.render();
      },
      registration: ({ subscription, event }) => note(subscription, { status: event, error: undefined }),
      refusal: ({ subscription, error }) => note(subscription, { status: "refused", error }),
    };
    this.stream = new Stream((last) => path("results", { start: "now", messages: "true", last_event_id: last }) + query, listeners, (state) => {
      this.connection = state;
    });
  }

  #forget(id) {
    forget(id);
    this.#keep(this.ids.filter((one) => one !== id));
    this.known.delete(id);
    this.#follow();
    this.render();
  }

  async #remove(id) {
    if (!confirm(`Remove the subscription ${id}?`)) return;
    await postTo(path("subscriptions/remove"), { id });
    this.#forget(id);
    this.act.removed(id);
  }

  async #pause(id) {
    await pause(id);
    this.act.removed(id);
    this.render();
  }

  async #resume(id) {
    try {
      this.known.set(id, { ...(await resume(id)), id, status: "sent" });
    } finally {
      this.render();
    }
  }

  #state(id) {
    if (paused().has(id)) return PAUSED;
    const { status, error } = this.known.get(id) ?? {};
    if (status === "refused") return el("span", { class: "bad" }, `refused: ${error}`);
    return connection(this.connection) === "the brokers do not answer" ? "not known: the brokers do not answer" : (status ?? "sent");
  }

  #row(id) {
    const rests = paused().get(id);
    const fields = rests ?? this.known.get(id) ?? {};
    const last = this.last.get(id);
    const done = (promise) => promise.catch(this.act.problem);
    const button = (text, act) => el("button", { type: "button", onclick: act, "aria-label": `${text} ${id}` }, text);
    const buttons = [
      ...(rests ? [] : [button("Show", () => this.act.follow(id))]),
      button("Edit", () => this.act.edit(id, fields)),
      ...(!token() ? [] : rests ? [button("Continue", () => done(this.#resume(id)))] : ["active", "pending", "sent"].includes(fields.status) ? [button("Pause", () => done(this.#pause(id)))] : []),
      rests || fields.status === "removed" || !token() ? button("Forget", () => this.#forget(id)) : button("Remove", () => done(this.#remove(id))),
    ];
    return el(
      "li",
      { "aria-current": id === this.chosen ? "true" : null, "data-id": id },
      el("div", { class: "name" }, el("b", {}, id), el("span", { class: "quiet" }, ` ${words(fields)}`)),
      el("div", { class: "quiet" }, this.#state(id), last ? el("span", {}, ", last result ", el("time", { "data-ms": last.time_ms }, ago(last.time_ms)), last.text ? `: ${last.text}` : "") : ""),
      el("div", { class: "buttons" }, ...buttons),
    );
  }

  #times() {
    for (const time of document.querySelectorAll("#mine time")) time.textContent = ago(Number(time.dataset.ms));
  }

  /** Show the list. The button that has the keyboard keeps it. */
  #show() {
    const held = document.activeElement?.closest("#mine") ? document.activeElement.getAttribute("aria-label") : null;
    const { ids } = this;
    show("mine", ids.length ? el("ul", {}, ids.map((id) => this.#row(id))) : el("p", { class: "quiet" }, "None yet. Those that you register or show here are kept in this browser."));
    if (held) [...document.querySelectorAll("#mine button")].find((one) => one.getAttribute("aria-label") === held)?.focus();
  }
}
