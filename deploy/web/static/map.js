// The live map: new messages, the results of one subscription, and the partitions of the distributor.

import { getFrom, parameters } from "/static/api.js";
import { count, el, rate, show, table } from "/static/dom.js";
import { colour } from "/static/dskype/colours.js";
import { offerTopologies, topology } from "/static/dskype/topologies.js";
import { Watch, path } from "/static/dskype/watch.js";
import { boxes, tip, world } from "/static/dskype/world.js";

const DOTS = 4000; // messages that stay on the map
const LATEST_MS = 2000; // a new message is bright for so long
const RENEW_MS = 10_000; // partitions
const SVG_MOST = 600; // partitions that are drawn as shapes of their own

const form = document.getElementById("form");
const field = (name) => form.elements.namedItem(name);
const problem = (error) => show("answer", el("p", { class: "problem", role: "alert" }, error.message));
const state = { seen: 0, since: 0, dots: [], watch: null, source: null };

let map, dots, pins, pinned, cells;

function countsShown() {
  const secs = (Date.now() - state.since) / 1000;
  const messages = state.source ? `${count(state.seen)} messages, ${rate(secs > 1 ? state.seen / secs : 0)}/s; ${count(state.dots.length)} of them on the map` : "messages are off";
  show("counts", el("p", { class: "quiet" }, messages));
}

function addDots(messages) {
  const fresh = messages.map(({ id, text, lat, lon, bbox }) => {
    const look = { radius: 2.5, stroke: false, fillColor: colour("--new"), fillOpacity: 0.95 };
    const shape = bbox ? L.layerGroup(boxes(bbox).map((corners) => L.rectangle(corners, { ...look, stroke: true, weight: 1, color: colour("--new"), fillOpacity: 0.1 }))) : L.circleMarker([lat, lon], look);
    (bbox ? shape.getLayers() : [shape]).forEach((one) => one.bindTooltip(tip(text, id)));
    return shape.addTo(dots);
  });
  state.dots.push(...fresh);
  for (const old of state.dots.splice(0, Math.max(0, state.dots.length - DOTS))) dots.removeLayer(old);
  setTimeout(() => fresh.forEach((shape) => (shape.getLayers?.() ?? [shape]).forEach((one) => one.setStyle({ fillColor: colour("--dot"), color: colour("--dot"), fillOpacity: shape.getLayers ? 0.05 : 0.6 }))), LATEST_MS);
}

function followMessages() {
  state.source?.close();
  state.source = null;
  if (document.hidden) return; // a browser has few connections
  if (field("messages").checked) {
    Object.assign(state, { seen: 0, since: Date.now(), source: new EventSource(path("messages", { topology: topology() })) });
    state.source.addEventListener("messages", (event) => {
      const { seen, messages } = JSON.parse(event.data);
      state.seen += seen;
      if (!document.hidden) addDots(messages);
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
  const { version, distributor, partitions, colours, loads, balance } = await getFrom(path("partitions", { topology: topology() }));
  if (!field("partitions").checked) return;
  cells.clearLayers();
  const placed = partitions.filter(({ box }) => box);
  const renderer = placed.length > SVG_MOST ? L.canvas() : L.svg();
  for (const { number, tasks, load, box } of placed) {
    const [tint] = tasks.map((task) => colours[task]);
    const look = { renderer, className: "partition", weight: 1, color: tint, fillColor: tint, fillOpacity: 0.1 };
    for (const corners of boxes(box)) L.rectangle(corners, look).bindTooltip(tip(`partition ${number}`, `tasks ${tasks.join(", ")}`, `load ${rate(load)}`)).addTo(cells);
  }
  const plan = el("a", { href: path("plan.svg", { topology: topology() }) }, "picture of the plan");
  const swatch = (task) => svgSwatch(colours[task]);
  show(
    "legend",
    el("p", {}, `${distributor}, version ${version}: ${partitions.length} partitions, ${placed.length} with a place; greatest load / mean ${balance.toFixed(2)} as the plan expects it. `, partitions.length ? plan : ""),
    el("p", { class: "row" }, loads.slice(0, 64).map((load, task) => el("span", { class: "swatch" }, swatch(task), `task ${task}: ${rate(load)}`))),
  );
}

function svgSwatch(tint) {
  const box = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  for (const [name, value] of Object.entries({ cx: 6, cy: 6, r: 5, fill: tint })) dot.setAttribute(name, value);
  for (const [name, value] of Object.entries({ width: 12, height: 12, "aria-hidden": "true" })) box.setAttribute(name, value);
  box.append(dot);
  return box;
}

function showWatch() {
  const { watch } = state;
  pins.clearLayers();
  if (!watch) return;
  const { fields } = watch;
  const mine = { pane: "pins", renderer: pinned, className: "subscription", weight: 2, color: colour("--here"), fillColor: colour("--here"), fillOpacity: 0.12, interactive: false };
  if (fields?.bbox) boxes(fields.bbox).forEach((corners) => L.rectangle(corners, mine).addTo(pins));
  else if (fields) L.circleMarker([fields.lat, fields.lon], { ...mine, radius: 9 }).addTo(pins);
  const entries = watch.isTopk ? watch.list.map((entry, i) => ({ ...entry, place: i + 1 })) : watch.newest;
  const placed = entries.filter(({ lat }) => lat !== undefined);
  for (const { lat, lon, text, message, place, score } of [...placed].reverse()) {
    const words = [place ? `${place}. ${text}` : text, message, score === undefined ? "" : `score ${score.toFixed(6)}`];
    L.circleMarker([lat, lon], { pane: "pins", renderer: pinned, className: "pin", radius: 6, weight: 1.5, color: colour("--ground"), fillColor: colour(place === 1 ? "--first" : "--pin"), fillOpacity: 1 }).bindTooltip(tip(...words)).addTo(pins);
  }
  show(
    "list",
    el("h2", {}, `${watch.isTopk ? "The list" : "The newest matches"} of ${watch.id}`),
    el("p", { class: "quiet" }, watch.refused ? `refused: ${watch.refused}` : `${watch.status}, ${watch.connection}; ${placed.length} of ${entries.length} have a known place`),
    table(
      [
        ["Rank", (entry) => String(entry.place ?? ""), "number"],
        ["Score", (entry) => (typeof entry.score === "number" ? entry.score.toFixed(6) : ""), "number"],
        ["Message", (entry) => (typeof entry.message === "string" ? entry.message : JSON.stringify(entry.message))],
        ["Text", (entry) => entry.text ?? ""],
      ],
      entries,
      "nothing yet",
    ),
  );
}

let drawn = false;
function soon() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => {
    drawn = false;
    showWatch();
  });
}

async function followSubscription() {
  state.watch?.close();
  state.watch = null;
  const id = field("sub").value;
  show("answer");
  show("list");
  const address = new URLSearchParams({ ...(topology() ? { topology: topology() } : {}), ...(id ? { sub: id } : {}) });
  history.replaceState(null, "", `${location.pathname}?${address}`);
  if (id) {
    state.watch = new Watch(topology(), id, soon);
    await state.watch.resume();
    const { fields } = state.watch;
    if (fields.bbox) map.fitBounds(boxes(fields.bbox)[0], { padding: [40, 40] });
    else map.setView([fields.lat, fields.lon], Math.max(map.getZoom(), 3));
  }
  showWatch();
}

async function start() {
  if (!(await offerTopologies())) problem(new Error("No DSkype topology runs."));
  map = await world("map");
  [cells, dots, pins] = [0, 1, 2].map(() => L.layerGroup().addTo(map));
  map.createPane("pins").style.zIndex = 450;
  pinned = L.svg({ pane: "pins" });
  field("sub").value = parameters.get("sub") ?? "";
  field("partitions").checked = parameters.get("partitions") === "true";
  followMessages();
  await showPartitions();
  await followSubscription();
  setInterval(() => document.hidden || showPartitions().catch(problem), RENEW_MS);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  followSubscription().catch(problem);
});
field("messages").addEventListener("change", followMessages);
document.addEventListener("visibilitychange", () => dots && followMessages());
field("partitions").addEventListener("change", () => showPartitions().catch(problem));
start()
  .catch(problem)
  .finally(() => (document.body.dataset.state = "shown"));
