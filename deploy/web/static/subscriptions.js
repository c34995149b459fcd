// The list of registered subscriptions, a page at a time. It is read when it is asked for, because that reads whole topics.

import { getFrom, parameters, postTo, token } from "/static/api.js";
import { count, el, link, moment, show, table } from "/static/dom.js";
import { address, mapAddress, field, offerTopologies, path, problem } from "/static/dskype/page.js";
import { PAUSED, forget, pause, paused, resume } from "/static/dskype/paused.js";
import { where, words } from "/static/dskype/results.js";

const here = { prefix: parameters.get("prefix") || null, after: parameters.get("after"), tenant: parameters.get("tenant") || null };
const page = (given) => address("subscriptions.html", { ...here, ...given });

function status({ status, since, error, limit }) {
  if (status === "refused") return el("span", { class: "bad" }, `refused: ${error}`);
  const limited = limit ? `, limited by ${limit}` : "";
  return (status === "active" ? `active since watermark ${since}` : status) + limited;
}

async function remove(id) {
  if (!confirm(`Remove the subscription ${id}?`)) return;
  await postTo(path("subscriptions/remove"), { id });
}

const WHAT = [
  ["Kind", ({ type }) => type ?? ""],
  ["Words", words, "long"],
  ["Where", where, "long"],
];

/** Return a button of a row. After its action the list is read again. An error is shown last, because it describes the list as it is then. */
function button(id, text, act) {
  const onclick = async () => {
    show("answer");
    const failed = await Promise.resolve(id).then(act).then(() => null, (error) => error);
    await render().catch(problem);
    if (failed) problem(failed);
  };
  return el("button", { type: "button", "aria-label": `${text} ${id}`, onclick }, text);
}

/** Show those that are paused: they are not in the list. */
function showPaused() {
  const rows = [...paused()].map(([id, fields]) => ({ id, ...fields }));
  const buttons = ({ id }) => [token() ? button(id, "continue", resume) : "", " ", button(id, "forget", forget)];
  show("paused", ...(rows.length ? [el("h2", {}, "Paused"), el("p", { class: "quiet" }, PAUSED), table([["Id", ({ id }) => id, "long"], ...WHAT, ["", buttons]], rows)] : []));
}

async function render() {
  const { subscriptions, total, after } = await getFrom(path("subscriptions", here));
  const shared = here.tenant !== null || subscriptions.some(({ tenant }) => tenant !== undefined);
  document.getElementById("of").hidden = !shared;
  show("total", `${count(total)} ${total === 1 ? "subscription" : "subscriptions"}${here.tenant ? ` of ${here.tenant}` : ""}${here.prefix ? ` whose ids begin with ${here.prefix}` : ""}`);
  show(
    "list",
    table(
      [
        ["Id", ({ id }) => link(mapAddress({ sub: id }), id), "long"],
        ...(shared ? [["Tenant", ({ tenant }) => (typeof tenant === "string" ? tenant : "default"), "long"]] : []),
        ...WHAT,
        ["Status", status, "long"],
        ["Registered", ({ registered_ms }) => moment(registered_ms / 1000)],
        ...(token() ? [["", ({ id }) => [button(id, "pause", pause), " ", button(id, "remove", remove)]]] : []),
      ],
      subscriptions,
      "none",
    ),
  );
  showPaused();
  show("pages", here.after ? link(page({ after: null }), "first page") : "", after ? link(page({ after }), "next page") : "");
}

async function start() {
  field("prefix").value = here.prefix ?? "";
  field("tenant").value = here.tenant ?? "";
  await offerTopologies();
  await render();
}

document.getElementById("form").addEventListener("submit", (event) => {
  event.preventDefault();
  location.href = page({ prefix: field("prefix").value || null, tenant: field("tenant").value || null, after: null });
});
start()
  .catch(problem)
  .finally(() => (document.body.dataset.state = "shown"));
