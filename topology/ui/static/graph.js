// The picture of a topology: dagre places the components and leads the streams around them.

import { count, el, rate, svg } from "./dom.js";

const WIDTH = 150, HEIGHT = 52, LINE = 14, LETTER = 6.4, MOST_LINES = 3;
const BUSY = 0.8;
const scales = [0.5, 0.7, 1, 1.4, 2];
let scale = null; // which of the scales

/** Return the edges: for each pair of components the streams from one to the other, with how many tuples they have ever carried and their rate. */
export function edgesOf(nodes, rates) {
  const found = new Map();
  for (const [target, node] of Object.entries(nodes)) {
    for (const { ":component": source, ":stream": stream, ":sani-stream": key, ":grouping": grouping } of node[":inputs"]) {
      if (!(source in nodes)) continue;
      const name = JSON.stringify([source, target]);
      const streams = (found.get(name) ?? found.set(name, { source, target, streams: [] }).get(name)).streams;
      streams.push({ stream, grouping, carried: nodes[source][":transferred"][":all-time"]?.[key] ?? 0, rate: rates[`${source}/${stream}/${target}`] ?? 0 });
    }
  }
  const edges = [...found.values()];
  for (const edge of edges) {
    edge.streams.sort((a, b) => b.rate - a.rate || b.carried - a.carried || (a.stream < b.stream ? -1 : 1));
    edge.rate = edge.streams.reduce((sum, { rate }) => sum + rate, 0);
    edge.silent = edge.streams.every(({ carried, rate }) => !carried && !rate);
  }
  if (edges.every(({ silent }) => silent)) for (const edge of edges) edge.silent = false; // it has just begun
  return edges;
}

const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
const named = ({ stream, rate: tuples }) => `${short(stream, 14)} ${rate(tuples)}/s`;

function linesOf({ streams }) {
  const carrying = streams.filter(({ carried, rate }) => carried || rate);
  const shown = (carrying.length ? carrying : streams).slice(0, MOST_LINES).map(named);
  const more = (carrying.length || streams.length) - shown.length;
  return more > 0 ? [...shown, `and ${more} more`] : shown;
}

const described = ({ source, target, streams }) =>
  [`${source} to ${target}`, ...streams.map(({ stream, grouping, carried, rate: tuples }) => `${stream}, ${grouping} grouping: ${rate(tuples)}/s, ${count(carried)} in all`)].join("\n");

/** Return a curve through points: straight at its ends, round at the points between. */
function curve(points) {
  const [first, ...rest] = points.map(({ x, y }) => [x, y]);
  const last = rest.pop();
  const parts = rest.map(([x, y], i) => {
    const [nextX, nextY] = i + 1 < rest.length ? [(x + rest[i + 1][0]) / 2, (y + rest[i + 1][1]) / 2] : last;
    return `Q ${x} ${y} ${nextX} ${nextY}`;
  });
  return `M ${first} ${parts.length ? parts.join(" ") : `L ${last}`}`;
}

function layout(nodes, edges) {
  const picture = new dagre.graphlib.Graph().setGraph({ rankdir: "LR", nodesep: 30, edgesep: 16, ranksep: 36, marginx: 12, marginy: 12 });
  // Spouts first: what leads back is found on the way from them.
  const isSpout = (id) => nodes[id][":type"] === "spout";
  for (const id of Object.keys(nodes).sort((a, b) => isSpout(b) - isSpout(a) || (a < b ? -1 : 1))) picture.setNode(id, { width: WIDTH, height: HEIGHT });
  const reached = new Set(edges.filter(({ silent }) => !silent).flatMap(({ source, target }) => [source, target]));
  for (const edge of edges) {
    const lines = edge.silent ? [] : linesOf(edge);
    // A component that only silent streams reach stands beside those that it belongs to.
    if (edge.silent && reached.has(edge.source) && reached.has(edge.target)) continue;
    const width = Math.max(0, ...lines.map((line) => line.length * LETTER));
    picture.setEdge(edge.source, edge.target, { width, height: lines.length * LINE, labelpos: "c", weight: edge.silent ? 0 : 1 });
  }
  dagre.layout(picture);
  return picture;
}

function drawnEdge(edge, { points, x, y }) {
  const lines = linesOf(edge);
  const width = 1.2 + 1.1 * Math.log10(1 + edge.rate);
  return svg(
    "g",
    { class: edge.rate ? "edge" : "edge idle" },
    svg("title", {}, described(edge)),
    svg("path", { class: "reach", d: curve(points) }), // wide and unseen, so that the mouse meets it
    svg("path", { d: curve(points), "stroke-width": width.toFixed(1), "marker-end": "url(#arrow)" }),
    lines.map((line, i) => svg("text", { x, y: y + (i - (lines.length - 1) / 2) * LINE + 4, "text-anchor": "middle" }, line)),
  );
}

function drawnNode(id, node, { x, y }) {
  const spout = node[":type"] === "spout";
  const load = Number(node[":capacity"]) || 0;
  const [left, top] = [x - WIDTH / 2, y - HEIGHT / 2];
  return svg(
    "a",
    { href: node[":link"], class: `node ${spout ? "spout" : load > BUSY ? "hot" : "bolt"}` },
    svg("title", {}, `${id}: ${count(node[":stats"].length)} executors, latency ${node[":latency"]} ms${spout ? "" : `, busy for ${(100 * load).toFixed(0)} % of the time`}`),
    svg("rect", { x: left, y: top, width: WIDTH, height: HEIGHT, rx: spout ? 22 : 4 }),
    spout ? null : svg("rect", { class: "load", x: left + 1, y: top + HEIGHT - 5, width: (WIDTH - 2) * Math.min(1, load), height: 4 }),
    svg("text", { x, y: y - 4, "text-anchor": "middle" }, short(id, 20)),
    svg("text", { x, y: y + 14, "text-anchor": "middle", class: "small" }, spout ? `${node[":latency"]} ms` : `capacity ${node[":capacity"]}`),
  );
}

/** Return the streams that have carried nothing, in words. */
const silentStreams = (edges) =>
  edges.flatMap(({ source, target, streams }) => streams.filter(({ carried, rate }) => !carried && !rate).map(({ stream, grouping }) => `${stream}: ${source} to ${target}, ${grouping} grouping`));

// What stays when the page renews the picture: what has the focus, where the picture is scrolled to, and whether the list is unfolded.
const scroll = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "picture of the topology" });
const summary = el("summary", {}), list = el("ul", {});
const silent = el("details", { class: "silent" }, summary, list);
const button = (text, label, step) => el("button", { type: "button", "aria-label": label, onclick: () => resize(step) }, text);
const size = el("div", { class: "size", role: "group", "aria-label": "size of the picture" }, button("–", "smaller", -1), button("+", "larger", 1));

function resize(step) {
  const drawn = scroll.firstElementChild;
  const [, , width, height] = drawn.getAttribute("viewBox").split(" ");
  // At first as large as the page is wide, if it can be read then.
  scale ??= width <= scroll.clientWidth ? scales.indexOf(1) : scales.indexOf(1) - 1;
  scale = Math.min(scales.length - 1, Math.max(0, scale + step));
  drawn.setAttribute("width", String(width * scales[scale]));
  drawn.setAttribute("height", String(height * scales[scale]));
}

/**
 * Draw the picture, with buttons for its size.
 * @param box the element that gets it.
 * @param nodes the answer of `visualization`.
 * @param rates `source/stream/target` -> tuples per second.
 */
export function drawGraph(box, nodes, rates) {
  if (!Object.keys(nodes).length) return box.replaceChildren();
  const edges = edgesOf(nodes, rates);
  const picture = layout(nodes, edges);
  const { width, height } = picture.graph();
  const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M 0 0 L 8 4 L 0 8 z" }));
  const drawn = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "components and streams" },
    svg("defs", {}, arrow),
    edges.filter(({ silent }) => !silent).map((edge) => drawnEdge(edge, picture.edge(edge.source, edge.target))),
    Object.entries(nodes).map(([id, node]) => drawnNode(id, node, picture.node(id))),
  );
  if (!box.contains(scroll)) box.replaceChildren(size, scroll, silent);
  const { scrollLeft, scrollTop } = scroll;
  scroll.replaceChildren(drawn);
  resize(0);
  Object.assign(scroll, { scrollLeft, scrollTop });
  const lines = silentStreams(edges);
  silent.hidden = !lines.length;
  summary.textContent = `${lines.length} ${lines.length === 1 ? "stream has" : "streams have"} carried nothing`;
  list.replaceChildren(...lines.map((line) => el("li", {}, line)));
}
