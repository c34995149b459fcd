// The newest messages on the map: at most so many, drawn on a canvas of their own once for all that come between two frames. Leaflet is `L`.

import { colour } from "/static/dskype/colours.js";
import { Named } from "/static/dskype/named.js";
import { boxes } from "/static/dskype/shapes.js";

const MOST = 4000; // messages that stay on the map
const LATEST_MS = 2000; // a new message stands out for so long

export const Dots = Named.extend({
  initialize() {
    Named.prototype.initialize.call(this, 420);
    this.messages = [];
    this.frames = 0;
  },

  /** Add messages, which may have a `bbox`. */
  add(messages) {
    const now = performance.now();
    for (const message of messages) this.messages.push({ ...message, came: now });
    if (this.messages.length > MOST) this.messages.splice(0, this.messages.length - MOST);
    this.draw();
    clearTimeout(this.fading);
    this.fading = setTimeout(() => this.draw(), LATEST_MS + 50); // the newest ones do not stand out any more
  },

  clear() {
    this.messages = [];
    this.tooltip?.remove();
    this.draw();
  },

  paint(context, { x: width, y: height }, now) {
    this.frames += 1;
    const [map, latest] = [this._map, []];
    const [old, fresh] = [colour("--dot"), colour("--new")];
    const dot = ({ lat, lon, bbox }, size, look) => {
      if (bbox) return area(bbox, look);
      const { x, y } = map.latLngToContainerPoint([lat, lon]);
      if (x > -size && y > -size && x < width + size && y < height + size) context.fillRect(x - size / 2, y - size / 2, size, size);
    };
    const area = (bbox, look) => {
      context.strokeStyle = look;
      for (const [from, to] of boxes(bbox)) {
        const [a, b] = [map.latLngToContainerPoint(from), map.latLngToContainerPoint(to)];
        context.globalAlpha *= 0.1;
        context.fillRect(a.x, b.y, b.x - a.x, a.y - b.y);
        context.globalAlpha *= 10;
        context.strokeRect(a.x, b.y, b.x - a.x, a.y - b.y);
      }
    };
    Object.assign(context, { fillStyle: old, globalAlpha: 0.65 });
    for (const message of this.messages) now - message.came < LATEST_MS ? latest.push(message) : dot(message, 4, old);
    Object.assign(context, { fillStyle: fresh, globalAlpha: 0.95 });
    for (const message of latest) dot(message, 5, fresh);
  },

  /** Return the newest message next to a point of the map as its place and lines of text, or null. */
  named(near) {
    for (let i = this.messages.length - 1; i >= 0; i--) {
      const { lat, lon, text, message_id } = this.messages[i];
      if (near([lat, lon])) return { at: [lat, lon], lines: [text, message_id] };
    }
    return null;
  },
});
