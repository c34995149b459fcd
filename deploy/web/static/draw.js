// The map of the form: shows where a subscription looks, and lets a rectangle, a circle or a point be drawn. Leaflet is `L`.

import { colour } from "/static/dskype/colours.js";
import { boxes, world } from "/static/dskype/world.js";

const within = (value, most) => Math.max(-most, Math.min(most, value));
const rounded = (degrees) => Number(degrees.toFixed(4));
const place = ({ lat, lng }) => ({ lat: rounded(within(lat, 90)), lon: rounded(within(lng, 180)) });

/** What is drawn from one point to another, as the fields of a subscription. */
const SHAPES = {
  bbox: (from, to) => ({ bbox: [Math.min(from.lon, to.lon), Math.min(from.lat, to.lat), Math.max(from.lon, to.lon), Math.max(from.lat, to.lat)] }),
  circle: (from, to, map) => ({ region: { center: from, radius_m: Math.max(1, Math.round(map.distance([from.lat, from.lon], [to.lat, to.lon]))) } }),
  point: (from) => from,
};

export class DrawnPlace {
  /** @param drawn called with the fields that were drawn: `bbox`, `region`, or `lat` and `lon`. */
  constructor(map, drawn) {
    Object.assign(this, { map, drawn, shape: null, from: null });
    this.shown = L.layerGroup().addTo(map);
    map.on("mousedown", ({ latlng }) => this.shape && (this.from = place(latlng)));
    map.on("mousemove", ({ latlng }) => this.from && this.show(SHAPES[this.shape](this.from, place(latlng), map)));
    map.on("mouseup", ({ latlng }) => this.#end(place(latlng)));
  }

  static async open(id, drawn) {
    return new DrawnPlace(await world(id), drawn);
  }

  /** Let the next movement of the mouse with its button down draw a shape: `bbox`, `circle` or `point`. */
  draw(shape) {
    this.shape = shape;
    this.map.dragging.disable();
    this.map.getContainer().classList.add("drawing");
  }

  #end(to) {
    if (!this.from) return;
    const fields = SHAPES[this.shape](this.from, to, this.map);
    Object.assign(this, { shape: null, from: null });
    this.map.dragging.enable();
    this.map.getContainer().classList.remove("drawing");
    this.drawn(fields);
  }

  /** Show where a subscription looks. */
  show(fields) {
    this.shown.clearLayers();
    for (const layer of placeLayers(fields, { weight: 2, color: colour("--here"), fillColor: colour("--here"), fillOpacity: 0.12, interactive: false })) layer.addTo(this.shown);
  }
}

/** Return layers of a map for where a subscription looks: a rectangle, a circle, or the place of a top-k subscription; none if it looks everywhere. */
export function placeLayers({ bbox, region, lat, lon }, look) {
  if (bbox) return boxes(bbox).map((corners) => L.rectangle(corners, look));
  if (region?.center) return [L.circle([region.center.lat, region.center.lon], { ...look, radius: region.radius_m })];
  return typeof lat === "number" && typeof lon === "number" ? [L.circleMarker([lat, lon], { ...look, radius: 9 })] : [];
}
