// What happened to a topology, newest first.

import { getFrom } from "./api.js";
import { el, moment, show, table } from "./dom.js";

let shown = ""; // as JSON: the table stays, with the place to which it is scrolled, as long as nothing happens

const COLUMNS = [
  ["When", ({ timeMs, untilMs }) => moment(timeMs / 1000) + (untilMs - timeMs < 1000 ? "" : ` to ${moment(untilMs / 1000).slice(11)}`)],
  ["Kind", ({ kind }) => kind],
  ["What", ({ what }) => what, "long"],
  ["Times", ({ times }) => times, "number", "how often that was, where the time between was less than a minute"],
  ["Component", ({ component }) => component, "long"],
  ["Why", ({ why }) => why, "long"],
];

/** Show the events of a topology in the element `events`. */
export async function showEvents(id) {
  const found = await getFrom(`/api/ui/topology/${encodeURIComponent(id)}/events`);
  if (JSON.stringify(found) === shown) return;
  shown = JSON.stringify(found);
  const since = found.sinceMs === null ? "The server has seen nothing of the topology yet." : `Watched since ${moment(found.sinceMs / 1000)}: what happened before is not known, but for what reports of the ten minutes before say.`;
  show("events", table(COLUMNS, found.events, "nothing that was seen"), el("p", { class: "quiet" }, since));
}
