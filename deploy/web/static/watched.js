// The subscription that is chosen: how it is, its list and its newest results, beside the map and on it. Leaflet is `L`.

import { postTo, token } from "/static/api.js";
import { NewestTable, count, el, facts, show, table } from "/static/dom.js";
import { colour } from "/static/dskype/colours.js";
import { connection, path, shareAddress } from "/static/dskype/page.js";
import { MOVES, columns, lines, where, words } from "/static/dskype/results.js";
import { boundsOf, layersOf, shapesOf } from "/static/dskype/shapes.js";
import { Watch } from "/static/dskype/watch.js";
import { tip } from "/static/dskype/world.js";

const CLOSEST = 9; // the zoom to which the map goes by itself

const NAMED = 5; // objects inside that are named
const isMove = ({ object }) => object !== undefined;
const what = ({ op, initial }) => (op === "enter" || op === "leave" ? el("span", { class: `move ${op}` }, op) : initial ? `${op}, was there` : op);

/** Return how many objects have entered and not left while the page followed, and some of their names. */
function inside({ inside }) {
  const names = [...inside.keys()].reverse();
  const more = names.length > NAMED ? `, and ${count(names.length - NAMED)} more` : "";
  return names.length ? `${count(names.length)}: ${names.slice(0, NAMED).join(", ")}${more}` : "0";
}

const time = (ms) => new Date(ms).toLocaleTimeString("sv-SE");

export class Watched {
  /**
   * @param map the map.
   * @param things the layer of objects.
   * @param chosen called with the id when another subscription is chosen, or null.
   * @param act `edit(id, fields)` and `problem(error)`.
   */
  constructor(map, things, chosen, act) {
    Object.assign(this, { map, things, chosen, act, watch: null });
    this.changes = new NewestTable("changes");
    this.pins = L.layerGroup().addTo(map);
    map.createPane("pins").style.zIndex = 450;
    this.renderer = L.svg({ pane: "pins" });
  }

  get id() {
    return this.watch?.id ?? null;
  }

  /** Follow a subscription that is about to be registered: `register` is called when nothing about it can be missed any more. */
  async begin(id, fields, register) {
    const watch = this.#choose(id);
    try {
      await watch.begin(fields);
      await register();
    } catch (error) {
      if (this.watch === watch) this.leave(); // there is nothing to follow
      throw error;
    }
  }

  /** Follow a subscription that is there, and show where it looks. */
  async follow(id) {
    const watch = this.#choose(id);
    show("list", el("p", { class: "quiet", role: "status" }, "Reading its results..."));
    try {
      await watch.resume();
    } catch (error) {
      if (this.watch === watch) this.leave();
      throw error;
    }
    if (watch.closed) return; // another one is followed by now
    this.render();
    const shapes = shapesOf(watch.fields);
    const bounds = boundsOf(shapes, this.map);
    if (!bounds.isValid()) return;
    if (shapes[0].kind === "point") this.map.setView(bounds.getCenter(), Math.max(this.map.getZoom(), 3));
    else this.map.fitBounds(bounds, { padding: [40, 40], maxZoom: CLOSEST });
  }

  #choose(id) {
    this.watch?.close();
    this.things.unmark();
    const watch = (this.watch = new Watch(id, () => this.render(), (result) => this.things.mark(result), () => this.things.keep(watch.inside)));
    document.getElementById("watched").hidden = false;
    for (const part of ["state", "actions", "list", "changes"]) show(part);
    show("subscription", id);
    this.chosen(id);
    return this.watch;
  }

  /** Follow nothing any more. */
  leave() {
    this.watch?.close();
    this.watch = null;
    this.pins.clearLayers();
    this.things.unmark();
    document.getElementById("watched").hidden = true;
    this.chosen(null);
  }

  render() {
    const { watch } = this;
    if (!watch) return; // a change that came late
    const since = watch.since === undefined || watch.since === null ? "" : ` since watermark ${watch.since}`;
    show(
      "state",
      facts([
        ["Words", words(watch.fields)],
        ["Where", where(watch.fields)],
        ["Status", watch.refused ? el("span", { class: "bad" }, `refused: ${watch.refused}`) : watch.status + since],
        ["Results here", watch.count],
        ...(watch.newest.some(isMove) ? [["Objects inside", inside(watch)]] : []),
        ["Connection", connection(watch.connection)],
        ...(watch.lost ? [["Lost", `${watch.lost} records that Kafka has dropped`]] : []),
        ...(watch.limit ? [["Limited", `lists come later, or meta is left out: more bytes than ${watch.limit} allows`]] : []),
        ...(watch.note ? [["Note", watch.note]] : []),
      ]),
    );
    this.#actions(watch);
    const entries = watch.isTopk ? watch.list : watch.newest;
    const placed = entries.filter(({ lat }) => lat !== undefined);
    const movesOnly = watch.newest.length > 0 && watch.newest.every(isMove);
    show("list", watch.isTopk ? [el("h3", {}, "Present list"), table(columns({ isTopk: true, watermark: watch.newestWatermark }), entries, "nothing yet")] : []);
    this.changes.show([["Time", ({ time_ms }) => time(time_ms)], ["What", what], ...(movesOnly ? MOVES : columns({ isScored: watch.fields?.type === "threshold" }))], watch.newest, "nothing yet");
    show("placed", el("p", { class: "quiet" }, `${placed.length} of ${entries.length} ${watch.isTopk ? "in the list" : "of the newest"} have a known place`));
    this.#pin(watch, placed.filter((entry) => !isMove(entry))); // objects move on, and are shown where they are
  }

  /** Show what can be done; buttons stay as long as they are the same, so that the one that has the keyboard keeps it. */
  #actions(watch) {
    const key = `${watch.id} ${watch.status} ${Boolean(token())} ${Boolean(watch.fields)}`;
    const box = document.getElementById("actions");
    if (box.dataset.key === key && box.children.length) return;
    box.dataset.key = key;
    const button = (text, act) => el("button", { type: "button", onclick: act }, text);
    const done = (promise) => promise.catch(this.act.problem);
    show(
      "actions",
      watch.fields ? button("Edit", () => this.act.edit(watch.id, watch.fields)) : "",
      token() ? button("Remove the subscription", () => done(this.remove())) : "",
      button("Share", () => done(this.share())),
      button("Close", () => this.leave()),
    );
  }

  async remove() {
    await postTo(path("subscriptions/remove"), { id: this.id });
    show("answer", el("p", { role: "status" }, "Removed."));
  }

  /** Put the address of the subscription into the clipboard, or show it where there is none. It never has the token. */
  async share() {
    const address = shareAddress({ sub: this.id });
    const copied = await Promise.resolve(navigator.clipboard?.writeText(address)).then(() => Boolean(navigator.clipboard), () => false);
    show("answer", el("p", { role: "status" }, copied ? "The link is in the clipboard: " : "The link: ", el("a", { href: address, class: "share" }, address)));
  }

  #pin({ fields, isTopk, newestWatermark }, placed) {
    this.pins.clearLayers();
    const own = { pane: "pins", renderer: this.renderer };
    const [here, ground, first, pin] = ["--here", "--ground", "--first", "--pin"].map(colour); // asked for once: after each change of the page it costs a look at all styles
    const mine = { ...own, className: "subscription", weight: 2, color: here, fillColor: here, fillOpacity: 0.12, interactive: false };
    for (const shape of fields ? shapesOf(fields) : []) for (const layer of layersOf(shape, mine)) layer.addTo(this.pins);
    for (const entry of [...placed].reverse()) {
      const look = { ...own, className: "pin", radius: 6, weight: 1.5, color: ground, fillColor: isTopk && entry.rank === 1 ? first : pin, fillOpacity: 1 };
      L.circleMarker([entry.lat, entry.lon], look).bindTooltip(tip(...lines(entry, newestWatermark))).addTo(this.pins);
    }
  }
}
