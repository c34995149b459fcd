// Objects that move: the newest state of each, with a tail that fades, and what the subscription that is followed says of them. Drawn on one canvas. Leaflet is `L`.

import { colour } from "/static/dskype/colours.js";
import { Named } from "/static/dskype/named.js";

const MOST = 2000; // objects that stay on the map
const TAIL = 8; // former places of each
const KEPT_MS = 120_000; // an object that says nothing for so long leaves the map
const GLIDE_MS = 1000; // it goes to its new place in so much time, or in less if its states come faster
const NEWS_MS = 10_000; // longer ago it is no news
const PULSE_MS = 1500; // so long an object stands out that has entered or left
const still = matchMedia("(prefers-reduced-motion: reduce)");

export const Things = Named.extend({
  initialize() {
    Named.prototype.initialize.call(this, 425);
    this.things = new Map(); // object -> { name, places, from, came, takes, text }, the one that came last at the end
    this.inside = new Set(); // objects that the subscription has said to be inside
    this.pulses = []; // { name, lat, lon, op, at }
    this.frames = 0;
    setInterval(() => this.forget(performance.now()), 5000);
  },

  /** Take states of objects, in the order in which they came. */
  add(messages) {
    const now = performance.now();
    for (const { object, gone, lat, lon, text, message_id } of messages) {
      const before = this.things.get(object);
      this.things.delete(object);
      if (gone) continue;
      const takes = Math.min(GLIDE_MS, before ? now - before.came : 0);
      const places = [...(before?.places ?? []).slice(-TAIL), [lat, lon]];
      this.things.set(object, { object, places, from: before ? this.at(before, now) : [lat, lon], came: now, takes, lat, lon, text, message_id });
    }
    for (const name of this.things.keys()) {
      if (this.things.size <= MOST) break;
      this.things.delete(name);
    }
    this.draw();
  },

  /** Show that a subscription says that an object has entered or left it; what is old has no pulse. */
  mark({ object, op, lat, lon, time_ms }) {
    if (op === "leave") this.inside.delete(object);
    else this.inside.add(object);
    if (op !== "inside" && Date.now() - time_ms < NEWS_MS) this.pulses.push({ object, op, lat, lon, at: performance.now() });
    if (this.pulses.length > TAIL * 25) this.pulses.shift();
    this.draw();
  },

  /** Forget which objects are inside, but for those with these names. */
  keep(names) {
    for (const name of this.inside) if (!names.has(name)) this.inside.delete(name);
    this.draw();
  },

  /** Begin with another subscription: nothing is known to be inside. */
  unmark() {
    this.inside.clear();
    this.pulses = [];
    this.draw();
  },

  clear() {
    this.things.clear();
    this.unmark();
  },

  forget(now) {
    const before = this.things.size;
    for (const [name, { came }] of this.things) {
      if (now - came < KEPT_MS) break; // those behind it came later
      this.things.delete(name);
    }
    if (this.things.size < before) this.draw();
  },

  /** Return where an object is drawn at a time: on its way from the place before to its newest one. */
  at({ from, lat, lon, came, takes }, now) {
    const share = still.matches || now >= came + takes ? 1 : Math.max(0, (now - came) / takes);
    return [from[0] + (lat - from[0]) * share, from[1] + (lon - from[1]) * share];
  },

  /** Return the object next to a point of the map as its place and lines of text, or null. */
  named(near) {
    for (const thing of [...this.things.values()].reverse()) {
      const at = this.at(thing, performance.now());
      if (near(at)) return { at, lines: [thing.object, thing.text, this.inside.has(thing.object) && "inside the subscription"] };
    }
    return null;
  },

  /** Draw tails, the older the fainter: all parts of the same age at once. */
  tails(context, drawn, onMap, look) {
    Object.assign(context, { strokeStyle: look, lineWidth: 2, lineCap: "round" });
    const ends = drawn.map(({ point }) => point);
    for (let age = 0; age < TAIL; age++) {
      context.globalAlpha = 0.6 * (1 - age / TAIL);
      context.beginPath();
      drawn.forEach(({ thing: { places } }, i) => {
        const before = places[places.length - 2 - age];
        if (!before) return;
        const start = onMap(before);
        context.moveTo(start.x, start.y);
        context.lineTo(ends[i].x, ends[i].y);
        ends[i] = start;
      });
      context.stroke();
    }
  },

  paint(context, { x: width, y: height }, now) {
    this.frames += 1;
    const map = this._map;
    const onMap = (place) => map.latLngToContainerPoint(place);
    const seen = ({ x, y }) => x > -20 && y > -20 && x < width + 20 && y < height + 20;
    const drawn = [];
    let moving = false;
    for (const thing of this.things.values()) {
      moving ||= !still.matches && now < thing.came + thing.takes;
      const point = onMap(this.at(thing, now));
      if (seen(point)) drawn.push({ thing, point });
    }
    const [plain, entered, left] = [colour("--thing"), colour("--enter"), colour("--leave")];
    this.tails(context, drawn, onMap, plain);
    for (const [inside, look] of [[false, plain], [true, entered]]) {
      context.globalAlpha = 1;
      context.fillStyle = look;
      context.strokeStyle = colour("--ground");
      context.lineWidth = 1;
      context.beginPath();
      for (const { thing, point } of drawn) {
        if (this.inside.has(thing.object) !== inside) continue;
        const size = inside ? 4.5 : 3.5;
        context.moveTo(point.x + size, point.y);
        context.arc(point.x, point.y, size, 0, 2 * Math.PI);
      }
      context.fill();
      context.stroke();
    }
    this.pulses = this.pulses.filter(({ at }) => now - at < PULSE_MS);
    for (const { object, op, lat, lon, at } of this.pulses) {
      const thing = this.things.get(object);
      if (!thing && lat === undefined) continue;
      const { x, y } = onMap(thing ? this.at(thing, now) : [lat, lon]);
      const share = still.matches ? 0.5 : (now - at) / PULSE_MS;
      Object.assign(context, { strokeStyle: op === "enter" ? entered : left, lineWidth: 2.5, globalAlpha: still.matches ? 1 : 1 - share });
      context.beginPath();
      context.arc(x, y, 6 + 16 * share, 0, 2 * Math.PI);
      context.stroke();
    }
    context.globalAlpha = 1;
    if (moving || (this.pulses.length && !still.matches)) this.draw();
    else if (this.pulses.length) setTimeout(() => this.draw(), PULSE_MS);
  },
});
