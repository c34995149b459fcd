// What the pages of DSkype share: the choice of a topology, the addresses that follow from it, and the form.

import { authorized, getFrom, health, parameters, token } from "/static/api.js";
import { el, show } from "/static/dom.js";

const select = () => document.querySelector("#choice select");

/** Return parameters, and the chosen topology, as a query. Those that are null or undefined are left out, and so is the topology if there is only one. */
function query(given = {}) {
  const all = Object.entries({ topology: select().value || null, ...given });
  return new URLSearchParams(all.filter(([, value]) => value !== null && value !== undefined));
}

/** Return the path of an answer below /api/dskype/. */
export const path = (name, given = {}) => `/api/dskype/${name}?${query(given)}`;

/** Return the address of a page of DSkype. */
export const address = (page, given = {}) => `/dskype/${page}?${query(given)}`;

/** Return the name of the chosen topology. */
export const topology = () => select().value;

/** Return what the part of the address behind `#` says: what the map shows, which stays in the browser and is in no log of a server. */
export const shown = () => new URLSearchParams(location.hash.slice(1));

/** Return an address of the map. Nothing but what is given is in it, and so never the token. */
export function mapAddress(given) {
  const search = query().toString();
  const hash = new URLSearchParams(Object.entries(given).filter(([, value]) => value !== null && value !== undefined)).toString();
  return `/${search && `?${search}`}${hash && `#${hash}`}`;
}

/** Return an address of the map for others. */
export const shareAddress = (given) => new URL(mapAddress(given), location.origin).href;

/** Fill the choice; fail if there is no topology. The page is loaded again when another one is chosen. */
export async function offerTopologies() {
  const { topologies } = await getFrom(path("topologies"));
  const given = parameters.get("topology");
  const names = given && !topologies.includes(given) ? [given, ...topologies] : topologies;
  if (!names.length) throw new Error("No DSkype topology runs.");
  select().replaceChildren(...names.map((name) => el("option", { value: name, selected: name === given }, name)));
  document.getElementById("choice").hidden = names.length < 2;
  select().addEventListener("change", () => (location.search = query()));
}

/** Return a field of the form. */
export const field = (name) => document.getElementById("form").elements.namedItem(name);

/** Show why something could not be done. */
export const problem = (error) => show("answer", el("p", { class: "problem", role: "alert" }, error.message));

const RENDER_MS = 250;

/** Return a function that has something shown anew: before the browser draws the page next, once for all calls until then, and no more often than anybody can read. */
export function renewing(render) {
  let [wanted, renewed] = [false, -RENDER_MS];
  const renew = (now) => {
    [wanted, renewed] = [false, now];
    render();
  };
  return () => {
    if (wanted) return;
    wanted = true;
    setTimeout(() => requestAnimationFrame(renew), Math.max(0, renewed + RENDER_MS - performance.now()));
  };
}

const AGAIN_MS = 2000;

/** Events of a path of the server, followed until it is closed: where the browser gives up, because the server refuses, it is asked again. */
export class Stream {
  /**
   * @param address returns the path, from the id of the last event.
   * @param listeners name of an event -> what is done with its data.
   * @param changed called with `live`, or `connecting` while there is no connection.
   */
  constructor(address, listeners, changed) {
    Object.assign(this, { address, listeners, changed });
    this.open();
  }

  open() {
    const source = (this.source = token() ? new TokenSource(this.address(this.last)) : new EventSource(this.address(this.last)));
    for (const [name, act] of Object.entries({ following: () => {}, ...this.listeners })) {
      source.addEventListener(name, (event) => {
        this.last = event.lastEventId || this.last;
        this.changed("live");
        act(JSON.parse(event.data));
      });
    }
    source.addEventListener("error", () => {
      if (this.source !== source) return;
      this.changed("connecting");
      if (source.readyState === EventSource.CLOSED) this.again = setTimeout(() => this.open(), AGAIN_MS);
    });
  }

  close() {
    clearTimeout(this.again);
    this.source.close();
    this.source = null;
  }
}

/** An event source that shows the token, which the browser's own cannot. It does not connect again. */
class TokenSource extends EventTarget {
  readyState = EventSource.CONNECTING;
  #stop = new AbortController();

  constructor(address) {
    super();
    this.#follow(address)
      .catch(() => {}) // what went wrong does not matter: it is asked again
      .finally(() => {
        this.readyState = EventSource.CLOSED;
        this.dispatchEvent(new Event("error"));
      });
  }

  async #follow(address) {
    const response = await fetch(address, { headers: { ...authorized(), Accept: "text/event-stream" }, signal: this.#stop.signal });
    if (!response.ok) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (text + value).split("\n\n");
      text = parts.pop();
      parts.forEach((part) => this.#hear(part));
    }
  }

  #hear(part) {
    const fields = new Map(part.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
    this.lastEventId = fields.get("id") ?? this.lastEventId;
    if (fields.has("data")) this.dispatchEvent(new MessageEvent(fields.get("event") ?? "message", { data: fields.get("data"), lastEventId: this.lastEventId ?? "" }));
  }

  close() {
    this.#stop.abort();
  }
}

/** Return how a connection is: `live` only if the server itself has just heard from the brokers. */
export const connection = (state) => (state === "live" && !health.brokers ? "the brokers do not answer" : state);
