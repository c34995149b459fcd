// The messages on the map: a sample of those that come, and how many there are.

import { health } from "/static/api.js";
import { count, el, rate, show } from "/static/dom.js";
import { path, Stream } from "/static/dskype/page.js";

const RATE_MS = 5000; // messages per second are those of so much time

export class Live {
  /** @param dots the layer that shows them. @param things the layer of those that are states of objects. @param wanted tells whether they are. */
  constructor(dots, things, wanted) {
    Object.assign(this, { dots, things, wanted, stream: null, seen: 0, since: 0, arrivals: [], connection: "connecting" });
    setInterval(() => this.tell(), 1000); // a rate falls while nothing comes
    document.addEventListener("visibilitychange", () => this.follow());
  }

  /** Follow the messages, or no longer: a page that is hidden lets go of its connection, for a browser has few of them. */
  follow() {
    this.stream?.close();
    this.stream = null;
    if (document.hidden) return;
    if (this.wanted()) {
      Object.assign(this, { seen: 0, since: Date.now(), arrivals: [] });
      const messages = ({ seen, new: n, messages }) => {
        this.seen += seen;
        this.arrivals.push({ time: Date.now(), n });
        this.things.add(messages.filter(({ object }) => object !== undefined));
        this.dots.add(messages.filter(({ object }) => object === undefined));
        this.tell();
      };
      this.stream = new Stream(() => path("messages"), { messages }, (connected) => {
        this.connection = connected;
        this.tell();
      });
    } else {
      this.dots.clear();
      this.things.clear();
    }
    this.tell();
  }

  /** Return how many messages came per second; those that were there before the page was do not count. */
  #perSecond() {
    if (this.connection !== "live" || !health.brokers) return "no data";
    const now = Date.now();
    this.arrivals = this.arrivals.filter(({ time }) => time > now - RATE_MS);
    const secs = Math.max(1000, Math.min(RATE_MS, now - this.since)) / 1000;
    return `${rate(this.arrivals.reduce((sum, { n }) => sum + n, 0) / secs)}/s`;
  }

  tell() {
    const objects = this.things.things.size;
    for (const item of document.querySelectorAll("#key .moving")) item.hidden = !objects;
    const dots = this.dots.messages.length || !objects ? `${count(this.dots.messages.length)} of them on the map` : "";
    const shown = [dots, objects ? `${count(objects)} objects on the map` : ""].filter(Boolean).join(", ");
    const text = this.stream ? `${count(this.seen)} messages, ${this.#perSecond()}; ${shown}` : "messages are off";
    show("counts", el("p", { class: "quiet" }, text));
  }
}
