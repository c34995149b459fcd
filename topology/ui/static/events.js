// What happened to a topology, newest first.

import { getFrom } from "./api.js";
import { el, moment, show, table } from "./dom.js";

let shown = ""; // as JSON: the table stays, with the place to which it is scrolled, as long as nothing happens

const COLUMNS = [
  ["When", ({ timeMs, untilMs }) => moment(timeMs / 1000) + (untilMs - timeMs < 1000 ? "" : ` to ${moment(untilMs / 1000).slice(11)}`), "", "when it was reported first, and last if it happened again soon"],
  ["Kind", ({ kind }) => kind],
  ["What", ({ what }) => what, "long", "what changed in the reports of the topology"],
  ["Times", ({ times }) => times, "number", "how often that was, where the time between was less than a minute"],
  ["Component", ({ component }) => component, "long", "of which this was reported; empty: the whole topology"],
  ["Why", ({ why }) => why, "long", "the reasons that were reported with it, or what had happened to the component in the minute before"],
];

/** Show the events of a topology in the element `events`. */
export async function showEvents(id) {
  const found = await getFrom(`/api/ui/topology/${encodeURIComponent(id)}/events`);
  if (JSON.stringify(found) === shown) return;
  shown = JSON.stringify(found);
  const since = found.sinceMs === null ? "The server has seen nothing of the topology yet." : `Watched since ${moment(found.sinceMs / 1000)}: earlier events are known only from reports of the ten minutes before.`;
  show("events", table(COLUMNS, found.events, "none yet"), el("p", { class: "quiet" }, since));
}
