// The partitions of the distribution plan on the map, in the colours of their tasks. Leaflet is `L`.

import { getFrom } from "/static/api.js";
import { el, rate, show, svg } from "/static/dom.js";
import { address, path } from "/static/dskype/page.js";
import { boxes } from "/static/dskype/shapes.js";
import { tip } from "/static/dskype/world.js";

const SVG_MOST = 600; // partitions that are drawn as shapes of their own
const SWATCHES = 64;

const swatch = (tint) => svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("circle", { cx: 6, cy: 6, r: 5, fill: tint }));

let renderers = null;

/** Return what draws so many shapes. There is one of a kind, for each stays on the map until it is removed. */
function rendererFor(shapes) {
  renderers ??= { svg: L.svg(), canvas: L.canvas() };
  const [used, other] = shapes > SVG_MOST ? [renderers.canvas, renderers.svg] : [renderers.svg, renderers.canvas];
  other.remove();
  return used;
}

/** Show the partitions in a layer of the map, and what they are below it. */
export async function showPartitions(cells, wanted) {
  if (!wanted()) {
    cells.clearLayers();
    return show("legend");
  }
  const { version, distributor, partitions, colours, loads, balance } = await getFrom(path("partitions"));
  if (!wanted()) return; // meanwhile
  cells.clearLayers();
  const placed = partitions.filter(({ box }) => box);
  const renderer = rendererFor(placed.length);
  for (const { number, tasks, load, box } of placed) {
    const tint = colours[tasks[0]];
    const look = { renderer, className: "partition", weight: 1, color: tint, fillColor: tint, fillOpacity: 0.1 };
    for (const corners of boxes(box)) L.rectangle(corners, look).bindTooltip(tip(`partition ${number}`, `tasks ${tasks.join(", ")}`, `load ${rate(load)}`)).addTo(cells);
  }
  if (!partitions.length) return show("legend", el("p", {}, `The distributor ${distributor} has no partitions: every task has a part of all keywords.`));
  show(
    "legend",
    el("p", {}, `${distributor}, version ${version}: ${partitions.length} partitions, ${placed.length} with a place; greatest load / mean ${balance.toFixed(2)} as the plan expects it. `, el("a", { href: address("load.html") }, "picture of the plan")),
    el("p", { class: "row" }, loads.slice(0, SWATCHES).map((load, task) => el("span", { class: "swatch" }, swatch(colours[task]), `task ${task}: ${rate(load)}`))),
  );
}
