// The page on which a subscription is registered and followed.

import { getFrom, health, parameters, postTo, token } from "/static/api.js";
import { el, facts, show, table } from "/static/dom.js";
import { both, comparison, Draft } from "/static/dskype/draft.js";
import { DrawnPlace } from "/static/dskype/draw.js";
import { address, connection, field, offerTopologies, path, problem } from "/static/dskype/page.js";
import { columns, where, words } from "/static/dskype/results.js";
import { Watch } from "/static/dskype/watch.js";

const form = document.getElementById("form");
let watch = null;

const say = (text) => show("answer", el("p", { role: "status" }, text));

/** Show the parts of the form that belong to a choice. */
function choose(name, value) {
  for (const part of form.querySelectorAll(`[data-${name}]`)) part.hidden = part.disabled = part.dataset[name] !== value;
}

const number = (name) => Number(field(name).value);
const kind = () => field("kind").value;

/** Return where the form says that a boolean subscription looks. */
function describedPlace() {
  const area = field("area").value;
  if (area === "bbox") return { bbox: ["west", "south", "east", "north"].map(number) };
  return area === "circle" ? { region: { center: { lat: number("center_lat"), lon: number("center_lon") }, radius_m: number("radius_m") } } : {};
}

/** Return the subscription that the form describes. */
function described() {
  if (kind() === "topk") {
    const where = field("where").value.trim() === "" ? {} : { where: field("where").value };
    return { type: "topk", text: field("text").value, lat: number("lat"), lon: number("lon"), k: number("k"), alpha: number("alpha"), ...where };
  }
  const expression = field("expression").value.trim() === "" ? {} : { expression: field("expression").value };
  const ttl = field("ttl_s").value === "" ? {} : { ttl_s: number("ttl_s") };
  return { type: "boolean", ...describedPlace(), ...expression, ...ttl };
}

const draft = new Draft(() => (form.matches(":valid") && (kind() === "topk" || described().expression || field("area").value) ? described() : null));

/** Follow a change of the form. */
function formChanged() {
  choose("kind", kind());
  choose("area", field("area").value);
  draft.changed();
  showPlace();
}

// -- what expressions may speak of -----------------------------------------------------------------------------------------

let attributes = [];

const attribute = () => attributes.find(({ name }) => name === field("attribute").value);

async function offerLanguage() {
  ({ attributes } = await getFrom(path("language")));
  document.getElementById("comparison").hidden = !attributes.length;
  field("attribute").replaceChildren(...attributes.map(({ name, type }) => el("option", { value: name }, `${name} (${type})`)));
  if (attributes.length) offerComparisons();
}

const EXAMPLES = { number: "200", string: "cafe", boolean: "true", strings: "vegan", time: "2026-01-31T12:00:00Z" };

function offerComparisons() {
  const { comparisons, type } = attribute();
  field("sign").replaceChildren(...comparisons.map((sign) => el("option", { value: sign }, sign)));
  field("value").placeholder = EXAMPLES[type];
  field("value").value = "";
}

function compare() {
  const sign = field("sign").value;
  if (sign !== "exists" && !/^[^"]*[^"\s][^"]*$/.test(field("value").value)) throw new Error("To compare an attribute, enter a value without double quotes.");
  const input = field(kind() === "topk" ? "where" : "expression");
  input.value = both(input.value, comparison(attribute(), sign, field("value").value));
  show("answer");
  formChanged();
}

// -- where, on a map --------------------------------------------------------------------------------------------------------

let place = null;

function showPlace() {
  if (place) place.show(kind() === "topk" ? (field("lat").value && field("lon").value ? described() : {}) : form.matches(":valid") ? describedPlace() : {});
}

async function openMap() {
  if (place || !document.getElementById("onmap").open) return;
  place = await DrawnPlace.open("place", ({ bbox, region, lat, lon }) => {
    if (bbox) ["west", "south", "east", "north"].forEach((name, i) => (field(name).value = bbox[i]));
    else if (region) [field("center_lat").value, field("center_lon").value, field("radius_m").value] = [region.center.lat, region.center.lon, region.radius_m];
    else [field("lat").value, field("lon").value] = [lat, lon];
    formChanged();
  });
  showPlace();
}

function draw() {
  if (kind() === "boolean" && !field("area").value) field("area").value = "bbox";
  formChanged();
  place?.draw(kind() === "topk" ? "point" : field("area").value);
}

const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

function follow(id) {
  watch?.close();
  watch = new Watch(id, render);
  history.replaceState(null, "", address("subscribe.html", { sub: id }));
  return watch;
}

/** Follow nothing any more. */
function leave() {
  watch?.close();
  watch = null;
  history.replaceState(null, "", address("subscribe.html"));
  document.getElementById("watched").hidden = true;
}

async function register() {
  if (!token()) throw new Error("To register a subscription from here, open the address that dskype ui printed: it has a token.");
  if (!health.brokers) throw new Error("The brokers do not answer. Try again when they do.");
  const fields = described();
  const id = field("id").value || newId();
  const made = follow(id);
  try {
    await made.begin(fields);
    await postTo(path("subscriptions"), { id, ...fields });
  } catch (error) {
    if (watch === made) leave(); // there is nothing to follow
    throw error;
  }
  field("id").value = id;
  say("Registered.");
}

async function followGiven() {
  const id = field("id").value;
  if (!id) throw new Error("To follow a subscription, enter its id.");
  await follow(id).resume();
  show("answer");
}

async function remove() {
  await postTo(path("subscriptions/remove"), { id: watch.id });
  say("Removed.");
}

const time = (ms) => new Date(ms).toLocaleTimeString("sv-SE");

function render() {
  if (!watch) return; // a change that came late
  document.getElementById("watched").hidden = false;
  show("subscription", watch.id);
  const since = watch.since === undefined || watch.since === null ? "" : ` since watermark ${watch.since}`;
  show(
    "state",
    facts([
      ["Words", words(watch.fields)],
      ["Where", where(watch.fields)],
      ["Status", watch.refused ? el("span", { class: "bad" }, `refused: ${watch.refused}`) : watch.status + since],
      ["Results here", watch.count],
      ["Connection", connection(watch.connection)],
      ...(watch.lost ? [["Lost", `${watch.lost} records that Kafka has dropped`]] : []),
      ...(watch.limit ? [["Limited", `lists come later, or meta is left out: more bytes than ${watch.limit} allows`]] : []),
      ...(watch.note ? [["Note", watch.note]] : []),
    ]),
  );
  const onMap = el("a", { href: address("map.html", { sub: watch.id }) }, "on the map");
  show("actions", onMap, " ", token() ? el("button", { type: "button", onclick: () => remove().catch(problem) }, "remove the subscription") : "");
  show("list", watch.isTopk ? [el("h3", {}, "Present list"), table(columns(watch), watch.list, "nothing yet")] : []);
  show("changes", table([["Time", ({ time_ms }) => time(time_ms)], ["What", ({ op }) => op], ...columns(watch)], watch.newest, "nothing yet"));
}

async function start() {
  field("id").value = parameters.get("sub") ?? "";
  await offerTopologies();
  offerLanguage().catch(problem);
  if (field("id").value) await followGiven();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  register().catch(problem);
});
field("follow").addEventListener("click", () => followGiven().catch(problem));
form.addEventListener("input", ({ target }) => ["attribute", "sign", "value", "id", "topology"].includes(target.name) || formChanged());
field("attribute").addEventListener("change", offerComparisons);
field("compare").addEventListener("click", () => {
  try {
    compare();
  } catch (error) {
    problem(error);
  }
});
field("draw").addEventListener("click", draw);
document.getElementById("onmap").addEventListener("toggle", () => openMap().catch(problem));
formChanged();
health.addEventListener("changed", () => watch && !document.getElementById("watched").hidden && render());
start()
  .catch(problem)
  .finally(() => (document.body.dataset.state = "shown"));
