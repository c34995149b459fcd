// The map: the world's land on plain degrees, as scores measure them, with layers for what pages show. Leaflet is `L`.

import { getFrom } from "/static/api.js";
import { el } from "/static/dom.js";
import { colour } from "/static/dskype/colours.js";

/** Return the rings of the land as [lat, lon] pairs: Natural Earth, as TopoJSON with quantized, delta-coded arcs. */
async function land() {
  const { arcs, objects, transform } = await getFrom("/static/dskype/vendor/world/land-110m.json");
  const [[sx, sy], [tx, ty]] = [transform.scale, transform.translate];
  const lines = arcs.map((arc) => {
    let [x, y] = [0, 0];
    return arc.map(([dx, dy]) => [(y += dy) * sy + ty, (x += dx) * sx + tx]);
  });
  const ring = (numbers) => numbers.flatMap((n, i) => (n < 0 ? [...lines[~n]].reverse() : lines[n]).slice(i ? 1 : 0));
  const polygons = objects.land.geometries.flatMap(({ type, arcs }) => (type === "MultiPolygon" ? arcs : [arcs]));
  return polygons.flatMap((polygon) => onPlane(polygon.map((numbers) => unwrapped(ring(numbers)))));
}

/** Return a ring without jumps at the antimeridian; one around a pole, which is Antarctica's, with the pole's edge of the plane. */
function unwrapped(ring) {
  let turns = 0;
  const found = ring.map(([lat, lon], i) => {
    const step = i ? lon - ring[i - 1][1] : 0;
    turns -= Math.abs(step) > 180 ? Math.sign(step) : 0;
    return [lat, lon + 360 * turns];
  });
  const [[, first], [, last]] = [found[0], found.at(-1)];
  return Math.abs(last - first) > 180 ? [...found, [-90, last], [-90, first]] : found;
}

/** Return a polygon's parts between -180 and 180 degrees. */
function onPlane(rings) {
  const within = (lon) => Math.max(-180, Math.min(180, lon));
  const copies = [-360, 0, 360].map((shift) => rings.map((ring) => ring.map(([lat, lon]) => [lat, within(lon + shift)])));
  return copies.filter(([outer]) => outer.some(([, lon]) => Math.abs(lon) < 180));
}

/** Return a map in the element `id`. */
export async function world(id) {
  const map = L.map(id, { crs: L.CRS.EPSG4326, preferCanvas: true, attributionControl: false, minZoom: 0, maxZoom: 18, zoomSnap: 0.25, worldCopyJump: false });
  const ground = map.createPane("land");
  ground.style.zIndex = 150;
  const renderer = L.canvas({ pane: "land" });
  const look = { renderer, interactive: false, stroke: true, weight: 0.7, color: colour("--coast"), fillColor: colour("--land"), fillOpacity: 1 };
  for (const polygon of await land()) L.polygon(polygon, look).addTo(map);
  const whole = [[-60, -180], [82, 180]];
  map.fitBounds(whole, { animate: false });
  map.setMinZoom(Math.max(0, map.getBoundsZoom(whole) - 0.5)).setMaxBounds([[-120, -230], [120, 230]]);
  return map;
}

/** Return a rectangle as the corners that Leaflet takes, two of them if it crosses the antimeridian. */
export const boxes = ([west, south, east, north]) =>
  west <= east ? [[[south, west], [north, east]]] : [[[south, west], [north, 180]], [[south, -180], [north, east]]];

/** Return lines of text for a tooltip: nodes, because Leaflet would read a text as markup. */
export const tip = (...lines) => el("div", { class: "tip" }, lines.filter(Boolean).map((line) => el("div", {}, String(line))));
