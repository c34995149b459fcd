// Where a subscription looks, as shapes that forms and maps share. Leaflet is `L`.
//
// {kind: "point", lat, lon}; {kind: "bbox", bbox: [west, south, east, north]}; {kind: "circle", lat, lon, radius_m}; {kind: "polygon", rings}, whose rings are lists of
// [lon, lat] that do not repeat the first corner. Longitudes are -180..180; what crosses the antimeridian is told as in records.

/** Return a rectangle as the corners that Leaflet takes, two of them if it crosses the antimeridian. */
export const boxes = ([west, south, east, north]) =>
  west <= east ? [[[south, west], [north, east]]] : [[[south, west], [north, 180]], [[south, -180], [north, east]]];

const DIGITS = 5; // a metre
const rounded = (degrees) => Number(degrees.toFixed(DIGITS));

/** Return a latitude and a longitude of the map as those of a record. */
export const placed = ({ lat, lng }) => ({ lat: rounded(Math.max(-90, Math.min(90, lat))), lon: rounded(((((lng + 180) % 360) + 360) % 360) - 180) });

const closed = (ring) => ring.length > 1 && ring[0][0] === ring.at(-1)[0] && ring[0][1] === ring.at(-1)[1];
const polygon = (rings) => ({ kind: "polygon", rings: rings.map((ring) => (closed(ring) ? ring.slice(0, -1) : ring).map(([lon, lat]) => [lon, lat])) });

/** Return the shapes of a subscription's fields; none if it looks everywhere. */
export function shapesOf({ bbox, region, lat, lon }) {
  if (bbox) return [{ kind: "bbox", bbox }];
  if (typeof lat === "number" && typeof lon === "number") return [{ kind: "point", lat, lon }];
  return [region ?? []].flat().flatMap((one) => {
    if (one.center) return [{ kind: "circle", lat: one.center.lat, lon: one.center.lon, radius_m: one.radius_m }];
    if (one.bbox && !one.coordinates) return [{ kind: "bbox", bbox: one.bbox }];
    return one.type === "MultiPolygon" ? one.coordinates.map(polygon) : [polygon(one.coordinates ?? [])];
  });
}

function record({ kind, bbox, lat, lon, radius_m, rings }) {
  if (kind === "bbox") return { bbox };
  if (kind === "circle") return { center: { lat, lon }, radius_m };
  return { type: "Polygon", coordinates: rings.map((ring) => [...ring, ring[0]]) };
}

/** Return the fields of a subscription that looks in some shapes. */
export function fieldsOf(shapes) {
  if (!shapes.length) return {};
  const [first] = shapes;
  if (first.kind === "point") return { lat: first.lat, lon: first.lon };
  if (shapes.length > 1) return { region: shapes.map(record) };
  return first.kind === "bbox" ? record(first) : { region: record(first) };
}

/** Return the shape that is drawn from one place of the map to another. */
export function drawn(kind, from, to, map) {
  const [a, b] = [placed(from), placed(to)];
  if (kind === "point") return { kind, ...b };
  if (kind === "circle") return { kind, ...a, radius_m: Math.max(1, Math.round(map.distance(from, to))) };
  const [west, east] = from.lng <= to.lng ? [a.lon, b.lon] : [b.lon, a.lon];
  return { kind, bbox: [west, Math.min(a.lat, b.lat), east, Math.max(a.lat, b.lat)] };
}

/** Return a ring as [lat, lon] pairs without jumps: an edge takes the shorter way around the globe. */
function unrolled(ring) {
  let before = null;
  return ring.map(([lon, lat]) => {
    before = before === null ? lon : lon + 360 * Math.round((before - lon) / 360);
    return [lat, before];
  });
}

function polygonLayers(rings, look) {
  const shown = rings.map(unrolled);
  const lons = shown.flat().map(([, lon]) => lon);
  const shifts = [0, ...(Math.max(...lons) > 180 ? [-360] : []), ...(Math.min(...lons) < -180 ? [360] : [])];
  return shifts.map((shift) => L.polygon(shown.map((ring) => ring.map(([lat, lon]) => [lat, lon + shift])), look));
}

/** Return layers of a map for a shape. */
export function layersOf(shape, look) {
  if (shape.kind === "bbox") return boxes(shape.bbox).map((corners) => L.rectangle(corners, look));
  if (shape.kind === "circle") return [L.circle([shape.lat, shape.lon], { ...look, radius: shape.radius_m })];
  if (shape.kind === "polygon") return polygonLayers(shape.rings, look);
  return [L.circleMarker([shape.lat, shape.lon], { ...look, radius: 9 })];
}

/** Return the bounds of shapes on the map. */
export function boundsOf(shapes, map) {
  const bounds = L.latLngBounds([]);
  for (const shape of shapes) {
    if (shape.kind === "bbox") bounds.extend(L.latLngBounds(boxes(shape.bbox)[0]));
    else if (shape.kind === "polygon") unrolled(shape.rings[0]).forEach((corner) => bounds.extend(corner));
    else if (shape.kind === "circle") bounds.extend(around(shape));
    else bounds.extend([shape.lat, shape.lon]);
  }
  return bounds;
}

function around({ lat, lon, radius_m }) {
  const high = radius_m / 111_195;
  const wide = Math.min(180, high / Math.max(0.01, Math.cos((lat * Math.PI) / 180)));
  return L.latLngBounds([Math.max(-90, lat - high), lon - wide], [Math.min(90, lat + high), lon + wide]);
}

/** Return the handles of a shape: `name`, `at()`, `move(place)`, and, where it can go, `remove()`. Places are {lat, lon}. */
export function handlesOf(shape) {
  const { kind } = shape;
  if (kind === "point") return [{ name: "the place", at: () => shape, move: (to) => Object.assign(shape, to) }];
  if (kind === "bbox") {
    const corner = (name, x, y) => ({
      name,
      at: () => ({ lat: shape.bbox[y], lon: shape.bbox[x] }),
      move: ({ lat, lon }) => {
        const bbox = [...shape.bbox];
        [bbox[x], bbox[y]] = [lon, lat];
        if (bbox[1] <= bbox[3]) shape.bbox = bbox;
      },
    });
    return [corner("the south-west corner", 0, 1), corner("the south-east corner", 2, 1), corner("the north-east corner", 2, 3), corner("the north-west corner", 0, 3)];
  }
  if (kind === "circle") {
    const rim = () => ({ lat: shape.lat, lon: around(shape).getEast() });
    const resize = ({ lat, lon }) => (shape.radius_m = Math.max(1, Math.round(L.CRS.Earth.distance(L.latLng(shape.lat, shape.lon), L.latLng(lat, lon)))));
    return [{ name: "the centre", at: () => shape, move: (to) => Object.assign(shape, to) }, { name: "the radius", at: rim, move: resize }];
  }
  return shape.rings.flatMap((ring) =>
    ring.map((_, i) => ({
      name: `corner ${i + 1}`,
      at: () => ({ lat: ring[i][1], lon: ring[i][0] }),
      move: ({ lat, lon }) => (ring[i] = [lon, lat]),
      remove: ring.length > 3 ? () => ring.splice(i, 1) : null,
    })),
  );
}
