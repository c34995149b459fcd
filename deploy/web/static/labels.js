// The names of countries and cities on the map. Where there is no room for all, the greater ones have it.

import { colour } from "/static/dskype/colours.js";
import { Overlay } from "/static/dskype/overlay.js";

const MOST = 90; // names of cities at a time
const COUNTRIES_UNTIL = 6; // at greater zooms names of countries say nothing

export const Labels = Overlay.extend({
  initialize(gazetteer, countries) {
    Overlay.prototype.initialize.call(this, 160);
    Object.assign(this, { gazetteer, countries: countries.sort((a, b) => b.width * b.height - a.width * a.height) });
  },

  paint(context, { x: width, y: height }) {
    const [map, taken] = [this._map, []];
    const zoom = map.getZoom();
    const pixels = (map.latLngToContainerPoint([0, 1]).x - map.latLngToContainerPoint([0, 0]).x); // of a degree
    const write = (text, x, y, look) => {
      context.strokeText(text, x, y);
      context.fillStyle = look;
      context.fillText(text, x, y);
    };
    const free = (box) => box[0] >= 0 && box[1] >= 0 && box[2] <= width && box[3] <= height && !taken.some((b) => box[0] < b[2] && b[0] < box[2] && box[1] < b[3] && b[1] < box[3]);
    Object.assign(context, { lineJoin: "round", lineWidth: 3, strokeStyle: colour("--land"), textBaseline: "middle" });
    if (zoom < COUNTRIES_UNTIL) {
      context.font = "600 12px system-ui, sans-serif";
      context.textAlign = "center";
      for (const { name, lat, lon, width: degrees } of this.countries) {
        const { x, y } = map.latLngToContainerPoint([lat, lon]);
        const half = context.measureText(name).width / 2 + 2;
        const box = [x - half, y - 8, x + half, y + 8];
        if (2 * half > degrees * pixels * 1.1 || !free(box)) continue;
        taken.push(box);
        write(name, x, y, colour("--country"));
      }
    }
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    const bounds = map.getBounds();
    const [south, west, north, east] = [bounds.getSouth(), bounds.getWest(), bounds.getNorth(), bounds.getEast()];
    const look = colour("--city");
    let most = Math.round(MOST * Math.min(1, (width * height) / 800_000));
    const considered = 40 * 2 ** (2 * Math.min(4, Math.max(0, zoom))); // at small zooms the greatest cities only
    for (const { name, lat, lon } of this.gazetteer.places.slice(0, considered)) {
      if (lat < south || lat > north || lon < west || lon > east) continue;
      const { x, y } = map.latLngToContainerPoint([lat, lon]);
      const box = [x - 4, y - 7, x + 8 + context.measureText(name).width, y + 7];
      if (!free(box)) continue;
      taken.push(box);
      context.fillStyle = look;
      context.fillRect(x - 1.5, y - 1.5, 3, 3);
      write(name, x + 5, y, look);
      if (!--most) break;
    }
    this.shown = taken.length;
  },
});
