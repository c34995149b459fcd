// The live map: new messages, the results of one subscription, and the partitions of the distributor.

import { getFrom, health, parameters } from "/static/api.js";
import { count, el, rate, show, svg, table } from "/static/dom.js";
import { colour } from "/static/dskype/colours.js";
import { placeLayers } from "/static/dskype/draw.js";
import { address, connection, field, offerTopologies, path, problem, Stream } from "/static/dskype/page.js";
import { columns, lines } from "/static/dskype/results.js";
import { Watch } from "/static/dskype/watch.js";
import { boxes, tip, world } from "/static/dskype/world.js";

const DOTS = 4000; // messages that stay on the map
const LATEST_MS = 2000; // a new message stands out for so long
const RENEW_MS = 10_000; // partitions
const SVG_MOST = 600; // partitions that are drawn as shapes of their own
const RATE_MS = 5000; // messages per second are those of so much time

const state = { seen: 0, since: 0, arrivals: [], dots: [], watch: null, stream: null, connection: "connecting" };

let map, dots, pins, pinned, cells;

/** Return how many messages came per second; those that were there before the page was do not count. */
function perSecond() {
  if (state.connection !== "live" || !health.brokers) return "no data";
  const now = Date.now();
  state.arrivals = state.arrivals.filter(({ time }) => time > now - RATE_MS);
  const secs = Math.max(1000, Math.min(RATE_MS, now - state.since)) / 1000;
  return `${rate(state.arrivals.reduce((sum, { n }) => sum + n, 0) / secs)}/s`;
}

function countsShown() {
  const messages = state.stream ? `${count(state.seen)} messages, ${perSecond()}; ${count(state.dots.length)} of them on the map` : "messages are off";
  show("counts", el("p", { class: "quiet" }, messages));
}

function addDots(messages) {
  const fresh = messages.map(({ message_id, text, lat, lon, bbox }) => {
    const look = { radius: 2.5, stroke: false, fillColor: colour("--new"), fillOpacity: 0.95 };
    const shape = bbox ? L.layerGroup(boxes(bbox).map((corners) => L.rectangle(corners, { ...look, stroke: true, weight: 1, color: colour("--new"), fillOpacity: 0.1 }))) : L.circleMarker([lat, lon], look);
    (bbox ? shape.getLayers() : [shape]).forEach((one) => one.bindTooltip(tip(text, message_id)));
    return shape.addTo(dots);
  });
  state.dots.push(...fresh);
  for (const old of state.dots.splice(0, Math.max(0, state.dots.length - DOTS))) dots.removeLayer(old);
  setTimeout(() => fresh.forEach((shape) => (shape.getLayers?.() ?? [shape]).forEach((one) => one.setStyle({ fillColor: colour("--dot"), color: colour("--dot"), fillOpacity: shape.getLayers ? 0.05 : 0.6 }))), LATEST_MS);
}

function followMessages() {
  state.stream?.close();
  state.stream = null;
  if (document.hidden) return; // a browser has few connections
  if (field("messages").checked) {
    Object.assign(state, { seen: 0, since: Date.now(), arrivals: [] });
    const listeners = {
      messages: ({ seen, new: n, messages }) => {
        state.seen += seen;
        state.arrivals.push({ time: Date.now(), n });
        addDots(messages);
        countsShown();
      },
    };
    state.stream = new Stream(() => path("messages"), listeners, (connected) => {
      state.connection = connected;
      countsShown();
    });
  } else {
    dots.clearLayers();
    state.dots = [];
  }
  countsShown();
}

async function showPartitions() {
  const wanted = field("partitions").checked;
  if (!wanted) {
    cells.clearLayers();
    show("legend");
    return;
  }
  const { version, distributor, partitions, colours, loads, balance } = await getFrom(path("partitions"));
  if (!field("partitions").checked) return;
  cells.clearLayers();
  const placed = partitions.filter(({ box }) => box);
  const renderer = placed.length > SVG_MOST ? L.canvas() : L.svg();
  for (const { number, tasks, load, box } of placed) {
    const [tint] = tasks.map((task) => colours[task]);
    const look = { renderer, className: "partition", weight: 1, color: tint, fillColor: tint, fillOpacity: 0.1 };
    for (const corners of boxes(box)) L.rectangle(corners, look).bindTooltip(tip(`partition ${number}`, `tasks ${tasks.join(", ")}`, `load ${rate(load)}`)).addTo(cells);
  }
  const plan = el("a", { href: path("plan.svg") }, "picture of the plan");
  show(
    "legend",
    el("p", {}, `${distributor}, version ${version}: ${partitions.length} partitions, ${placed.length} with a place; greatest load / mean ${balance.toFixed(2)} as the plan expects it. `, partitions.length ? plan : ""),
    el("p", { class: "row" }, loads.slice(0, 64).map((load, task) => el("span", { class: "swatch" }, swatch(colours[task]), `task ${task}: ${rate(load)}`))),
  );
}

const swatch = (tint) => svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("circle", { cx: 6, cy: 6, r: 5, fill: tint }));

function showWatch() {
  const { watch } = state;
  pins.clearLayers();
  if (!watch) return;
  const { fields } = watch;
  const mine = { pane: "pins", renderer: pinned, className: "subscription", weight: 2, color: colour("--here"), fillColor: colour("--here"), fillOpacity: 0.12, interactive: false };
  for (const layer of placeLayers(fields ?? {}, mine)) layer.addTo(pins);
  const entries = watch.isTopk ? watch.list : watch.newest;
  const placed = entries.filter(({ lat }) => lat !== undefined);
  for (const entry of [...placed].reverse()) {
    const look = { pane: "pins", renderer: pinned, className: "pin", radius: 6, weight: 1.5, color: colour("--ground"), fillColor: colour(entry.rank === 1 ? "--first" : "--pin"), fillOpacity: 1 };
    L.circleMarker([entry.lat, entry.lon], look).bindTooltip(tip(...lines(entry))).addTo(pins);
  }
  show(
    "list",
    el("h2", {}, `${watch.isTopk ? "The list" : "The newest matches"} of ${watch.id}`),
    el("p", { class: "quiet" }, watch.refused ? `refused: ${watch.refused}` : `${watch.status}, ${connection(watch.connection)}; ${placed.length} of ${entries.length} have a known place`),
    table(columns(watch), entries, "nothing yet"),
  );
}

/** Let the address name what the page shows. */
const keepAddress = () => history.replaceState(null, "", address("map.html", { sub: field("sub").value || null, partitions: field("partitions").checked ? "true" : null }));

async function followSubscription() {
  state.watch?.close();
  state.watch = null;
  const id = field("sub").value;
  show("answer");
  show("list");
  keepAddress();
  if (id) {
    const watch = (state.watch = new Watch(id, showWatch));
    await watch.resume();
    if (watch.closed) return; // another one is followed by now
    const { fields } = watch;
    if (fields.bbox) map.fitBounds(boxes(fields.bbox)[0], { padding: [40, 40] });
    else if (fields.region?.center || watch.isTopk) map.setView([fields.region?.center.lat ?? fields.lat, fields.region?.center.lon ?? fields.lon], Math.max(map.getZoom(), 3));
  }
  showWatch();
}

async function start() {
  map = await world("map");
  [cells, dots, pins] = [0, 1, 2].map(() => L.layerGroup().addTo(map));
  map.createPane("pins").style.zIndex = 450;
  pinned = L.svg({ pane: "pins" });
  field("sub").value = parameters.get("sub") ?? "";
  field("partitions").checked = parameters.get("partitions") === "true";
  await offerTopologies();
  followMessages();
  await showPartitions();
  await followSubscription();
  setInterval(() => document.hidden || !health.brokers || showPartitions().catch(problem), RENEW_MS);
  setInterval(countsShown, 1000); // a rate falls while nothing comes
  health.addEventListener("changed", () => state.watch && showWatch());
}

document.getElementById("form").addEventListener("submit", (event) => {
  event.preventDefault();
  followSubscription().catch(problem);
});
field("messages").addEventListener("change", followMessages);
document.addEventListener("visibilitychange", () => dots && followMessages());
field("partitions").addEventListener("change", () => {
  keepAddress();
  showPartitions().catch(problem);
});
start()
  .catch(problem)
  .finally(() => (document.body.dataset.state = "shown"));
