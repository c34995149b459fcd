// Follows one subscription: what it is, its present list, and what changes.

import { getFrom } from "/static/api.js";
import { path, renewing, Stream } from "/static/dskype/page.js";

const SHOWN = 50; // results that are kept for the page
const RECENT_MS = 600_000; // results are read from this long ago on; a published list is not so old if anything has changed since

// An id is a text or a number. As a number of JavaScript, two that are large may be one; the text and the number 7 are two.
const keyOf = ({ message, message_id }) => `${typeof message} ${message_id}`;

/** A subscription that is followed. */
export class Watch {
  /**
   * @param id of the subscription.
   * @param changed called after changes, a few times a second at most.
   * @param moved called with each result that says that an object has entered or left.
   * @param ended called when it is not known any more of some objects whether they are inside.
   */
  constructor(id, changed, moved, ended) {
    Object.assign(this, { id, changed, moved, ended, status: "unknown", fields: null, refused: null, limit: null, note: null, watermark: -1, connection: "connecting", lost: 0, closed: false });
    this.members = new Map(); // see keyOf -> entry, in the order in which they came
    this.inside = new Map(); // object -> the result that said that it has entered
    this.newest = [];
    this.count = 0;
    this.tell = renewing(() => this.changed());
  }

  /** Follow a subscription that is about to be registered; return when nothing about it can be missed any more. */
  begin(fields) {
    this.fields = fields;
    this.status = "sent";
    return this.#follow("now");
  }

  /** Follow a subscription that is there. */
  async resume() {
    const { time_ms, registered, refused, topk, note } = await getFrom(path("subscription", { id: this.id }));
    if (this.closed) return; // meanwhile
    if (registered === null) throw new Error(`There is no subscription ${this.id}.`);
    Object.assign(this, { fields: registered, status: registered.status, limit: registered.limit ?? null, refused, note });
    if (topk) {
      this.watermark = topk.watermark;
      for (const entry of [...topk.topk].reverse()) this.members.set(keyOf(entry), entry);
    }
    // Without a published list, all changes make the list: those since the registration, which began empty unless it goes on from the one before.
    const whole = registered.update ? "beginning" : registered.registered_ms;
    await this.#follow(String(this.isTopk && !topk ? whole : Math.max(registered.registered_ms, time_ms - RECENT_MS)));
  }

  get isTopk() {
    return this.fields?.type === "topk";
  }

  /** The present list with ranks, best first; of two equal scores the newer message first. */
  get list() {
    const best = [...this.members.values()].reverse().sort((a, b) => b.score - a.score);
    return best.map((entry, i) => ({ ...entry, rank: i + 1 }));
  }

  /** The newest watermark that is known: the list is the one there. */
  get newestWatermark() {
    return Math.max(this.watermark, ...this.newest.map(({ watermark }) => watermark));
  }

  close() {
    this.closed = true;
    this.stream?.close();
    document.removeEventListener("visibilitychange", this.seen);
  }

  /** Follow from a start; resolve when nothing can be missed any more. A page that is hidden lets go of its connection, for a browser has few of them. */
  #follow(start) {
    return new Promise((resolve) => {
      const address = (last) => path("results", { sub: this.id, start, messages: "true", last_event_id: last ?? this.last });
      const on = (act) => (data) => {
        act(data);
        this.tell();
      };
      const listeners = {
        following: on(resolve),
        result: on((result) => this.#apply(result)),
        registration: on((told) => this.#begin(told)),
        limited: on(({ limit }) => (this.limit = limit)),
        refusal: on(({ error }) => Object.assign(this, { status: "refused", refused: error })),
        lost: on(({ partitions }) => (this.lost += partitions.reduce((sum, { records }) => sum + records, 0))),
      };
      const changed = (state) => {
        if (this.connection === state) return;
        this.connection = state;
        this.tell();
      };
      const open = () => (this.stream = new Stream(address, listeners, changed));
      this.seen = () => {
        if (document.hidden) {
          this.last = this.stream.last;
          this.stream.close();
          this.connection = "paused";
        } else if (this.connection === "paused") {
          this.connection = "connecting";
          open();
        }
      };
      document.addEventListener("visibilitychange", this.seen);
      open();
    });
  }

  /** Another registration: what was inside before it may have left without a word. */
  #begin({ event, watermark }) {
    Object.assign(this, { status: event === "updated" ? "active" : event, since: watermark });
    for (const [object, { watermark: at }] of this.inside) if (at <= watermark) this.inside.delete(object);
    this.ended();
  }

  #apply(result) {
    this.count += 1;
    this.newest = [result, ...this.newest].slice(0, SHOWN);
    if (["enter", "inside", "leave"].includes(result.op)) {
      if (result.op === "leave") this.inside.delete(result.object);
      else this.inside.set(result.object, result);
      this.moved(result);
    }
    if (!["add", "remove", "score"].includes(result.op) || result.watermark <= this.watermark) return; // the published list has it
    const key = keyOf(result);
    this.members.delete(key);
    if (result.op !== "remove") this.members.set(key, result);
  }
}
