// The first page: the map with new messages, a subscription that is drawn on it, and the results of the one that is chosen.

import { health, parameters, postTo, token } from "/static/api.js";
import { el, show } from "/static/dom.js";
import { Dots } from "/static/dskype/dots.js";
import { Drawing } from "/static/dskype/draw.js";
import { SubscriptionForm } from "/static/dskype/form.js";
import { Found } from "/static/dskype/found.js";
import { Live } from "/static/dskype/live.js";
import { Mine } from "/static/dskype/mine.js";
import { field, mapAddress, offerTopologies, path, problem, shown } from "/static/dskype/page.js";
import { showPartitions } from "/static/dskype/partitions.js";
import { search } from "/static/dskype/search.js";
import { Things } from "/static/dskype/things.js";
import { Watched } from "/static/dskype/watched.js";
import { world } from "/static/dskype/world.js";

const RENEW_MS = 10_000; // partitions
const CITY_ZOOM = 6.5;
const BEST = 10; // messages that a search finds in place of all that reach a score
const HINTS = {
  point: "Click the place.",
  bbox: "Drag from one corner of the rectangle to the other.",
  circle: "Drag from the centre of the circle to its rim.",
  polygon: "Click the corners; close with a click on the first one, or a double click. Backspace takes back a corner.",
};

const tools = document.getElementById("tools");
const layer = (name) => document.getElementById("show").elements.namedItem(name);
const tool = (name) => tools.querySelector(`[name="${name}"]`);
let map, drawing, watched, mine, cells, found;
const form = new SubscriptionForm((shapes) => drawing?.set(shapes), (text) => drawing?.say(text));
const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// -- drawing -------------------------------------------------------------------------------------------------------------------

function began(taken) {
  for (const button of tools.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", String(button.dataset.tool === taken));
  const corners = drawing?.corners.length ?? 0;
  tool("undo").hidden = taken !== "polygon" || !corners;
  tool("done").hidden = taken !== "polygon" || corners < 3;
  tool("cancel").hidden = !taken;
  const hint = document.getElementById("hint");
  hint.hidden = !taken;
  if (taken && hint.textContent !== HINTS[taken]) hint.textContent = HINTS[taken];
}

tools.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button || !drawing) return;
  const { tool: kind } = button.dataset;
  if (button.name === "undo") drawing.undo();
  else if (button.name === "done") drawing.close();
  else if (!kind || drawing.tool === kind) drawing.take(null);
  else if (event.detail === 0) drawing.put(kind); // the keyboard
  else drawing.take(kind);
});

/** Show a place: the view of the form is what is drawn there. */
function drawn(shapes) {
  document.getElementById("new").open = true;
  form.take(shapes);
}

// -- the subscription that is chosen -------------------------------------------------------------------------------------------

/** Let the address name what the page shows. */
const keepAddress = () => history.replaceState(null, "", mapAddress({ sub: watched.id, partitions: layer("partitions").checked ? "true" : null }));

function chosen(id) {
  keepAddress();
  mine.choose(id);
  document.getElementById("new").open = id === null;
}

async function follow(id) {
  show("answer");
  await watched.follow(id);
  mine.choose(id, watched.watch?.fields);
}

function edit(id, fields) {
  document.getElementById("new").open = true;
  form.fill(id, fields);
  field(form.kind === "boolean" ? "expression" : "text").focus();
}

async function register() {
  if (!token()) throw new Error("To register a subscription from here, open the address that dskype ui printed: it has a token.");
  if (!health.brokers) throw new Error("The brokers do not answer. Try again when they do.");
  const fields = form.described();
  const id = field("id").value || newId();
  try {
    await watched.begin(id, fields, () => postTo(path("subscriptions"), { id, ...fields }));
  } catch (error) {
    document.getElementById("new").open = true;
    throw error;
  }
  mine.choose(id, { ...fields, status: "sent" });
  field("id").value = id;
  drawing.set([]);
  show("answer", el("p", { role: "status" }, "Registered."));
}

async function followGiven() {
  const id = field("id").value;
  if (!id) throw new Error("To follow a subscription, enter its id.");
  await follow(id);
}

/** Search the window for what the form describes, in place of all that reach a score for the best. It needs no token. */
async function searchWindow() {
  if (!document.getElementById("form").reportValidity()) return;
  show("answer");
  const { min_score, ...fields } = form.described();
  await found.search(min_score === undefined ? fields : { ...fields, type: "topk", k: BEST });
}

// -- start ---------------------------------------------------------------------------------------------------------------------

async function start() {
  const wanted = { sub: shown().get("sub") ?? parameters.get("sub"), partitions: (shown().get("partitions") ?? parameters.get("partitions")) === "true" };
  map = await world("map");
  cells = L.layerGroup().addTo(map);
  const dots = new Dots().addTo(map);
  const things = new Things().addTo(map);
  drawing = new Drawing(map, drawn, began);
  drawing.set(form.shapes);
  watched = new Watched(map, things, chosen, { edit, problem });
  found = new Found(map, watched.renderer);
  mine = new Mine({ follow: (id) => follow(id).catch(problem), edit, removed: (id) => watched.id === id && watched.leave(), problem });
  search(document.getElementById("place"), document.getElementById("places"), (text) => map.gazetteer.find(text), ({ lat, lon }) => map.setView([lat, lon], Math.max(map.getZoom(), CITY_ZOOM)));
  Object.assign(window, { dskype: { map, drawing, dots, things, form } }); // for tests, and for who is curious
  field("id").value = wanted.sub ?? "";
  layer("partitions").checked = wanted.partitions;
  await offerTopologies();
  const live = new Live(dots, things, () => layer("messages").checked);
  live.follow();
  layer("messages").addEventListener("change", () => live.follow());
  const partitions = () => showPartitions(cells, () => layer("partitions").checked);
  layer("partitions").addEventListener("change", () => {
    keepAddress();
    partitions().catch(problem);
  });
  setInterval(() => document.hidden || !health.brokers || partitions().catch(problem), RENEW_MS);
  health.addEventListener("changed", () => watched.watch && watched.render());
  addEventListener("hashchange", () => shown().get("sub") && shown().get("sub") !== watched.id && follow(shown().get("sub")).catch(problem));
  await form.offerLanguage().catch(problem); // it says how scores are shown
  await Promise.all([partitions(), mine.open(), wanted.sub ? follow(wanted.sub) : null]);
}

document.getElementById("form").addEventListener("submit", (event) => {
  event.preventDefault();
  register().catch(problem);
});
field("follow").addEventListener("click", () => followGiven().catch(problem));
field("search").addEventListener("click", () => searchWindow().catch(problem));
start()
  .catch(problem)
  .finally(() => (document.body.dataset.state = "shown"));
