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
  return objects.land.geometries.flatMap(({ type, arcs }) => (type === "MultiPolygon" ? arcs : [arcs])).map((polygon) => polygon.map(ring));
}

/** Return a map in the element `id`. */
export async function world(id) {
  const map = L.map(id, { crs: L.CRS.EPSG4326, preferCanvas: true, attributionControl: false, minZoom: 0, maxZoom: 18, zoomSnap: 0.25, worldCopyJump: false });
  const ground = map.createPane("land");
  ground.style.zIndex = 150;
  const renderer = L.canvas({ pane: "land" });
  const look = { renderer, interactive: false, stroke: true, weight: 0.7, color: colour("--coast"), fillColor: colour("--land"), fillOpacity: 1 };
  for (const polygon of await land()) L.polygon(polygon, look).addTo(map);
  map.fitBounds([[-58, -170], [78, 180]], { animate: false });
  return map;
}

/** Return a rectangle as the corners that Leaflet takes, two of them if it crosses the antimeridian. */
export const boxes = ([west, south, east, north]) =>
  west <= east ? [[[south, west], [north, east]]] : [[[south, west], [north, 180]], [[south, -180], [north, east]]];

/** Return lines of text for a tooltip: nodes, because Leaflet would read a text as markup. */
export const tip = (...lines) => el("div", { class: "tip" }, lines.filter(Boolean).map((line) => el("div", {}, String(line))));
