// How much each task of a component sends to each task of another one.

import { count, el, rate, show, svg, table } from "/static/dom.js";

const ACROSS = 520, WIDTH = 120, HEIGHT = 24, STEP = 34, THICKEST = 12;

const choice = el("select", { name: "pair" });
const box = el("div", { id: "flow" });
// It stays when the page shows newer numbers: whether it is unfolded, and where it is scrolled to.
const drawn = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "picture of the flow" }), numbers = el("div");
const folded = el("details", {}, el("summary", {}, "The same in numbers"), numbers);
document.getElementById("flows").replaceChildren(el("form", { class: "row" }, el("label", {}, "From and to ", choice)), box);
let pairs = [];

const nameOf = ({ source, target }) => `${source} to ${target}`;

/** Return the tasks of one side, one below the other, and how high the middle of each is. */
function column(ids, all, x, rows) {
  const ys = ids.map((_, i) => ((i + 0.5) * rows * STEP) / ids.length);
  const nodes = ids.map((id, i) =>
    svg(
      "g",
      { class: "node" },
      svg("title", {}, `task ${id}: ${rate(all[i])}`),
      svg("rect", { x, y: ys[i] - HEIGHT / 2, width: WIDTH, height: HEIGHT, rx: 4 }),
      svg("text", { x: x + WIDTH / 2, y: ys[i] + 4, "text-anchor": "middle" }, `task ${id}: ${rate(all[i])}`),
    ),
  );
  return [ys, nodes];
}

/** Return the picture: senders at the left, receivers at the right, and between them curves that are wide and strong where much goes. */
function picture(name, senders, receivers, values) {
  const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
  const rows = Math.max(senders.length, receivers.length), most = Math.max(...values.flat());
  const [froms, left] = column(senders, values.map(sum), 1, rows);
  const [tos, right] = column(receivers, receivers.map((_, j) => sum(values.map((row) => row[j]))), ACROSS - WIDTH - 1, rows);
  const [start, middle, end] = [WIDTH + 1, ACROSS / 2, ACROSS - WIDTH - 1];
  const curve = (value, i, j) =>
    svg(
      "g",
      { class: "edge", "data-flow": `${senders[i]} ${receivers[j]}` },
      svg("title", {}, `task ${senders[i]} to task ${receivers[j]}: ${rate(value)}`),
      svg("path", { d: `M ${start} ${froms[i]} C ${middle} ${froms[i]} ${middle} ${tos[j]} ${end} ${tos[j]}`, "stroke-width": (1 + ((THICKEST - 1) * value) / most).toFixed(1), "stroke-opacity": (0.25 + (0.6 * value) / most).toFixed(2) }),
    );
  const curves = values.flatMap((row, i) => row.map((value, j) => (value > 0 ? curve(value, i, j) : null)));
  return svg("svg", { viewBox: `0 0 ${ACROSS} ${rows * STEP}`, width: ACROSS, height: rows * STEP, role: "img", "aria-label": `the flow from ${name}` }, curves, left, right);
}

function render() {
  const pair = pairs.find((one) => nameOf(one) === choice.value);
  if (!pair) return show("flow", el("p", { class: "quiet" }, "No task has reported tuples from another one yet."));
  const { source, target, senders, receivers, of_senders, of_receivers, tuples, tuples_per_second } = pair;
  const values = tuples_per_second ?? tuples;
  const unit = tuples_per_second ? "per second over the last minute" : "in all, because the time is too short for rates";
  const columns = receivers.map((id, j) => [`to ${id}`, (i) => el("span", { title: `${count(tuples[i][j])} in all` }, rate(values[i][j])), "number", `tuples of all streams to task ${id} of ${target}, ${unit}`]);
  const some = of_senders > senders.length || of_receivers > receivers.length ? `The busiest ${senders.length} of ${of_senders} senders and ${receivers.length} of ${of_receivers} receivers. ` : "";
  if (!box.contains(drawn)) box.replaceChildren(drawn, el("p", { class: "quiet" }), folded);
  const { scrollLeft } = drawn;
  drawn.replaceChildren(picture(nameOf(pair), senders, receivers, values));
  Object.assign(drawn, { scrollLeft });
  box.querySelector("p").textContent = `${some}Tasks of ${source} at the left, of ${target} at the right: tuples ${unit}, as receivers count them. Bytes are counted by stream, not by sender.`;
  numbers.replaceChildren(table([["Task", (i) => `${senders[i]}`, "number", `the sender: a task of ${source}, by its number in the topology`], ...columns], [...senders.keys()]));
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
