// How much each task of a component sends to each task of another one.

import { count, el, rate, show, table } from "/static/dom.js";

const SHADES = 4; // beside none

const choice = el("select", { name: "pair" });
const box = el("div", { id: "flow" });
document.getElementById("flows").replaceChildren(el("form", { class: "row" }, el("label", {}, "From and to ", choice)), box);
let pairs = [];

const nameOf = ({ source, target }) => `${source} to ${target}`;

/** Return a cell whose shade says how much it is of the most. */
function cell(value, most, title) {
  const shade = value > 0 ? Math.ceil((SHADES * value) / most) : 0;
  return el("span", { class: "flow", "data-shade": String(shade), title }, rate(value));
}

function render() {
  const pair = pairs.find((one) => nameOf(one) === choice.value);
  if (!pair) return show("flow", el("p", { class: "quiet" }, "No task has reported tuples from another one yet."));
  const { senders, receivers, of_senders, of_receivers, tuples, tuples_per_second } = pair;
  const values = tuples_per_second ?? tuples;
  const most = Math.max(...values.flat());
  const unit = tuples_per_second ? "per second over the last minute" : "in all, because the time is too short for rates";
  const columns = receivers.map((id, j) => [`to ${id}`, (i) => cell(values[i][j], most, `${count(tuples[i][j])} in all`), "number", `tuples of all streams to task ${id} of ${pair.target}, ${unit}`]);
  const some = of_senders > senders.length || of_receivers > receivers.length ? `The busiest ${senders.length} of ${of_senders} senders and ${receivers.length} of ${of_receivers} receivers. ` : "";
  show(
    "flow",
    table([["Task", (i) => `${senders[i]}`, "number", `the sender: a task of ${pair.source}, by its number in the topology`], ...columns], [...senders.keys()]),
    el("p", { class: "quiet" }, `${some}Tuples ${unit}, as receivers count them. Bytes are counted by stream, not by sender.`),
  );
}

/** Show what is known now. The choice stays. */
export function showFlows(found) {
  pairs = found;
  const names = found.map(nameOf);
  if ([...choice.options].map(({ value }) => value).join() !== names.join()) {
    const before = choice.value;
    choice.replaceChildren(...names.map((name) => el("option", { value: name, selected: name === before }, name)));
  }
  render();
}

choice.addEventListener("change", render);
