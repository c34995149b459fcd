// Follows one subscription: what it is, its present list, and what changes.

import { getFrom } from "/static/api.js";
import { path } from "/static/dskype/page.js";

const SHOWN = 50; // results that are kept for the page
const RECENT_MS = 600_000; // results are read from this long ago on; a published list is not so old if anything has changed since

/** A subscription that is followed. */
export class Watch {
  /**
   * @param id of the subscription.
   * @param changed called after changes: once for all that come before the browser draws the page again.
   */
  constructor(id, changed) {
    Object.assign(this, { id, changed, status: "unknown", fields: null, refused: null, note: null, watermark: -1, connection: "connecting", lost: 0, closed: false });
    this.members = new Map(); // message as JSON -> entry, in the order in which they came
    this.newest = [];
    this.count = 0;
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
    Object.assign(this, { fields: registered, status: registered.status, refused, note });
    if (topk) {
      this.watermark = topk.watermark;
      for (const entry of [...topk.topk].reverse()) this.members.set(JSON.stringify(entry.message), entry);
    }
    const whole = this.isTopk && !topk; // without a published list, all changes make the list
    await this.#follow(String(whole ? registered.registered_ms : Math.max(registered.registered_ms, time_ms - RECENT_MS)));
  }

  get isTopk() {
    return this.fields?.type === "topk";
  }

  /** The present list with ranks, best first; of two equal scores the newer message first. */
  get list() {
    const best = [...this.members.values()].reverse().sort((a, b) => b.score - a.score);
    return best.map((entry, i) => ({ ...entry, rank: i + 1 }));
  }

  close() {
    this.closed = true;
    this.source?.close();
    document.removeEventListener("visibilitychange", this.seen);
  }

  /** Follow from a start; resolve when nothing can be missed any more. A page that is hidden lets go of its connection, for a browser has few of them. */
  #follow(start) {
    this.seen = () => {
      if (document.hidden) {
        this.source.close();
        this.connection = "paused";
      } else if (this.connection === "paused") {
        this.connection = "connecting";
        this.#connect(start).catch(() => {});
      }
    };
    document.addEventListener("visibilitychange", this.seen);
    return this.#connect(start);
  }

  #connect(start) {
    const source = (this.source = new EventSource(path("results", { sub: this.id, start, messages: "true", last_event_id: this.last })));
    const on = (name, act) =>
      source.addEventListener(name, (event) => {
        this.last = event.lastEventId || this.last;
        act(JSON.parse(event.data));
        this.#tell();
      });
    on("result", (result) => this.#apply(result));
    on("registration", ({ event, watermark }) => Object.assign(this, { status: event, since: watermark }));
    on("refusal", ({ error }) => Object.assign(this, { status: "refused", refused: error }));
    on("lost", ({ partitions }) => (this.lost += partitions.reduce((sum, { records }) => sum + records, 0)));
    return new Promise((resolve, reject) => {
      on("following", () => {
        this.connection = "live";
        resolve();
      });
      source.addEventListener("error", () => {
        this.connection = source.readyState === EventSource.CLOSED ? "ended" : "connecting";
        if (this.connection === "ended") reject(new Error("The results cannot be followed."));
        this.#tell();
      });
    });
  }

  #tell() {
    if (this.told) return;
    this.told = true;
    requestAnimationFrame(() => {
      this.told = false;
      this.changed();
    });
  }

  #apply(result) {
    this.count += 1;
    this.newest = [result, ...this.newest].slice(0, SHOWN);
    if (result.op === "match" || result.watermark <= this.watermark) return; // the published list has it
    const key = JSON.stringify(result.message);
    this.members.delete(key);
    if (result.op === "add") this.members.set(key, result);
  }
}
