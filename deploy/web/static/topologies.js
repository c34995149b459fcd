// The choice of a topology, which all pages of DSkype have.

import { getFrom, parameters } from "/static/api.js";
import { el } from "/static/dom.js";
import { path } from "/static/dskype/watch.js";

const select = () => document.querySelector("#choice select");

/** Return the name of the chosen topology; null: the only one. */
export const topology = () => select().value || null;

/** Fill the choice, and return whether there is a topology. The page is loaded again when another one is chosen. */
export async function offerTopologies() {
  const { topologies } = await getFrom(path("topologies", {}));
  const given = parameters.get("topology");
  const names = given && !topologies.includes(given) ? [given, ...topologies] : topologies;
  select().replaceChildren(...names.map((name) => el("option", { value: name, selected: name === given }, name)));
  document.getElementById("choice").hidden = names.length < 2;
  select().addEventListener("change", () => (location.search = new URLSearchParams({ topology: select().value })));
  return names.length > 0;
}
