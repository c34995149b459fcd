// The map: the world's countries on plain degrees, as scores measure them, with the names of places. Leaflet is `L`.

import { getFrom } from "/static/api.js";
import { el } from "/static/dom.js";
import { colour } from "/static/dskype/colours.js";
import { Gazetteer } from "/static/dskype/gazetteer.js";
import { Labels } from "/static/dskype/labels.js";

/** Return the countries as `{name, polygons}`, polygons as rings of [lat, lon] pairs: Natural Earth, as TopoJSON with quantized, delta-coded arcs. */
async function countries() {
  const { arcs, objects, transform } = await getFrom("/static/dskype/vendor/world/countries.json");
  const [[sx, sy], [tx, ty]] = [transform.scale, transform.translate];
  const lines = arcs.map((arc) => {
    let [x, y] = [0, 0];
    return arc.map(([dx, dy]) => [(y += dy) * sy + ty, (x += dx) * sx + tx]);
  });
  const ring = (numbers) => numbers.flatMap((n, i) => (n < 0 ? [...lines[~n]].reverse() : lines[n]).slice(i ? 1 : 0));
  return objects.countries.geometries.map(({ arcs: polygons, properties }) => ({
    name: properties.name,
    polygons: polygons.flatMap((polygon) => onPlane(polygon.map((numbers) => unwrapped(ring(numbers))))),
  }));
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

/** Return a ring as lines, without what lies on the edge of the plane: there is no coast, and no border. */
function coasts(ring) {
  const lines = [[]];
  const onEdge = ([, lon]) => Math.abs(lon) === 180;
  [...ring, ring[0]].forEach((at, i, all) => (i && onEdge(at) && onEdge(all[i - 1]) ? lines.push([at]) : lines.at(-1).push(at)));
  return lines.filter((line) => line.length > 1);
}

/** Return a map in the element `id`, with land, borders and names. */
export async function world(id) {
  const map = L.map(id, { crs: L.CRS.EPSG4326, preferCanvas: true, attributionControl: false, minZoom: 0, maxZoom: 18, zoomSnap: 0.25, worldCopyJump: false });
  const ground = map.createPane("land");
  ground.style.zIndex = 150;
  const renderer = L.canvas({ pane: "land", padding: 0.3 });
  const [land, gazetteer] = await Promise.all([countries(), Gazetteer.open()]);
  const flat = { renderer, interactive: false };
  const rings = land.flatMap(({ polygons }) => polygons);
  const shapes = [...rings.map((polygon) => L.polygon(polygon, { ...flat, stroke: false, fillOpacity: 1 })), ...rings.flat().map((ring) => L.polyline(coasts(ring), { ...flat, weight: 0.7 }))];
  shapes.forEach((shape) => shape.addTo(map));
  const labels = new Labels(gazetteer, land.map(countryLabel)).addTo(map);
  const paint = () => shapes.forEach((shape) => shape.setStyle({ color: colour("--coast"), fillColor: colour("--land") }));
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    paint();
    labels.draw();
  });
  new ResizeObserver(() => map.invalidateSize({ animate: false })).observe(map.getContainer()); // also where what is above the map changes its height
  const whole = [[-56, -180], [78, 180]];
  map.fitBounds(whole, { animate: false });
  const limits = [[-120, -230], [120, 230]];
  map.setMinZoom(Math.max(0, map.getBoundsZoom(whole) - 0.5)).panInsideBounds(limits, { animate: false }); // else the map would slide there under whoever begins to draw
  map.setMaxBounds(limits);
  return Object.assign(map, { gazetteer });
}

/** Return where the name of a country is written: in the middle of its greatest part. */
function countryLabel({ name, polygons }) {
  const boxOf = ([outer]) => outer.reduce(([s, w, n, e], [lat, lon]) => [Math.min(s, lat), Math.min(w, lon), Math.max(n, lat), Math.max(e, lon)], [90, 180, -90, -180]);
  const sized = polygons.map(boxOf).map(([south, west, north, east]) => ({ lat: (south + north) / 2, lon: (west + east) / 2, width: east - west, height: north - south }));
  return { name, ...sized.reduce((a, b) => (b.width * b.height > a.width * a.height ? b : a)) };
}

/** Return lines of text for a tooltip: nodes, because Leaflet would read a text as markup. */
export const tip = (...lines) => el("div", { class: "tip" }, lines.filter(Boolean).map((line) => el("div", {}, String(line))));
