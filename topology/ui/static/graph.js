// The picture of a topology: components in columns from the spouts on, and the rate of each stream on its way.

import { rate, svg } from "./dom.js";

const WIDTH = 150, HEIGHT = 52, ACROSS = 290, DOWN = 96, MARGIN = 16;

/** Return component -> column. A component is right of all that it reads from, but for streams that lead back. */
export function columns(nodes) {
  const found = {};
  const visiting = new Set();
  const column = (id) => {
    if (id in found) return found[id];
    if (visiting.has(id)) return -1; // a stream leads back
    visiting.add(id);
    const before = nodes[id][":inputs"].map((input) => input[":component"]).filter((source) => source in nodes && source !== id);
    found[id] = 1 + Math.max(-1, ...before.map(column));
    visiting.delete(id);
    return found[id];
  };
  Object.keys(nodes).sort().forEach(column);
  return found;
}

function places(nodes) {
  const found = {}, filled = {};
  for (const [id, column] of Object.entries(columns(nodes)).sort(([a, x], [b, y]) => x - y || (a < b ? -1 : 1))) {
    const row = (filled[column] = (filled[column] ?? -1) + 1);
    found[id] = { x: MARGIN + column * ACROSS, y: MARGIN + 24 + row * DOWN };
  }
  return found;
}

function edge(from, to, texts) {
  const back = to.x <= from.x;
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
  const bend = back ? 60 : (x2 - x1) / 2;
  const lift = back ? -HEIGHT : 0;
  const path = `M ${x1} ${y1} C ${x1 + bend} ${y1 + lift}, ${x2 - bend} ${y2 + lift}, ${x2} ${y2}`;
  const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2 + lift - 6];
  return svg(
    "g",
    { class: "edge" },
    svg("path", { d: path, "marker-end": "url(#arrow)" }),
    texts.map(([text, title], i) => svg("text", { x, y: y - 13 * (texts.length - 1 - i), "text-anchor": "middle" }, svg("title", {}, title), text)),
  );
}

/**
 * Return the picture.
 * @param nodes the answer of `visualization`.
 * @param rates `source/stream/target` -> tuples per second.
 */
export function graph(nodes, rates) {
  const at = places(nodes);
  const edges = Object.entries(nodes).flatMap(([id, node]) => {
    const bySource = Map.groupBy ? Map.groupBy(node[":inputs"], (i) => i[":component"]) : grouped(node[":inputs"]);
    return [...bySource].map(([source, inputs]) =>
      edge(at[source], at[id], inputs.map((i) => [`${short(i[":stream"], 12)} ${rate(rates[`${source}/${i[":stream"]}/${id}`] ?? 0)}/s`, `${i[":stream"]}, ${i[":grouping"]} grouping`])),
    );
  });
  const boxes = Object.entries(nodes).map(([id, node]) => {
    const { x, y } = at[id];
    const spout = node[":type"] === "spout";
    const busy = Number(node[":capacity"]);
    return svg(
      "a",
      { href: node[":link"], class: `node ${spout ? "spout" : busy > 0.8 ? "hot" : "bolt"}` },
      svg("title", {}, `${id}: ${node[":stats"].length} executors, latency ${node[":latency"]} ms`),
      svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: spout ? 22 : 4 }),
      svg("text", { x: x + WIDTH / 2, y: y + 22, "text-anchor": "middle" }, short(id, 20)),
      svg("text", { x: x + WIDTH / 2, y: y + 40, "text-anchor": "middle", class: "small" }, spout ? `${node[":latency"]} ms` : `capacity ${node[":capacity"]}`),
    );
  });
  const right = Math.max(...Object.values(at).map(({ x }) => x)) + WIDTH + MARGIN;
  const bottom = Math.max(...Object.values(at).map(({ y }) => y)) + HEIGHT + MARGIN;
  const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" }, svg("path", { d: "M 0 0 L 8 4 L 0 8 z" }));
  return svg("svg", { viewBox: `0 0 ${right} ${bottom}`, width: right, height: bottom, role: "group", "aria-label": "components and streams" }, svg("defs", {}, arrow), edges, boxes);
}

const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function grouped(inputs) {
  const found = new Map();
  for (const input of inputs) found.set(input[":component"], [...(found.get(input[":component"]) ?? []), input]);
  return found;
}
