// The page on which a subscription is registered and followed.

import { health, parameters, postTo, token } from "/static/api.js";
import { el, facts, show, table } from "/static/dom.js";
import { address, connection, field, offerTopologies, path, problem } from "/static/dskype/page.js";
import { columns, where, words } from "/static/dskype/results.js";
import { Watch } from "/static/dskype/watch.js";

const form = document.getElementById("form");
let watch = null;

const say = (text) => show("answer", el("p", { role: "status" }, text));

function chooseKind() {
  const kind = field("kind").value;
  for (const part of form.querySelectorAll("[data-kind]")) part.hidden = part.disabled = part.dataset.kind !== kind;
}

const number = (name) => Number(field(name).value);

/** Return the subscription that the form describes. */
function described() {
  if (field("kind").value === "topk") return { type: "topk", text: field("text").value, lat: number("lat"), lon: number("lon"), k: number("k"), alpha: number("alpha") };
  const ttl = field("ttl_s").value === "" ? {} : { ttl_s: number("ttl_s") };
  return { type: "boolean", bbox: ["west", "south", "east", "north"].map(number), expression: field("expression").value, ...ttl };
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
  if (field("id").value) await followGiven();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  register().catch(problem);
});
field("follow").addEventListener("click", () => followGiven().catch(problem));
for (const choice of form.querySelectorAll("[name=kind]")) choice.addEventListener("change", chooseKind);
chooseKind();
health.addEventListener("changed", () => watch && !document.getElementById("watched").hidden && render());
start()
  .catch(problem)
  .finally(() => (document.body.dataset.state = "shown"));
