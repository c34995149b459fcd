// The page of a topology.

import { choices, final, get, keep, of, options, parameters, post, token } from "./api.js";
import { el, facts, latency, link, moment, show, table } from "./dom.js";
import { showEvents } from "./events.js";
import { drawGraph } from "./graph.js";

const id = parameters.get("id") ?? "";
const componentPage = (component) => `component.html?id=${encodeURIComponent(component)}&topology_id=${encodeURIComponent(id)}`;
const system = () => `?sys=${parameters.get("sys") === "true"}`;

/** Return `source/stream/target` -> tuples per second over the last ten minutes, or the topology's shorter life. */
export function rates(metrics, ageSecs) {
  const secs = Math.max(1, Math.min(600, ageSecs));
  const pairs = metrics.bolts.flatMap((bolt) => bolt.executed.map((e) => [`${e.component_id}/${e.stream_id}/${bolt.id}`, e.value / secs]));
  return Object.fromEntries(pairs);
}

async function change(path, question) {
  if (question && !confirm(question)) return;
  try {
    await post(of(id, path));
    show("answer", el("p", { role: "status" }, "done"));
    await render();
  } catch (error) {
    show("answer", el("p", { class: "problem", role: "alert" }, error.message));
  }
}

function actions(page) {
  if (!token()) return el("p", { class: "quiet" }, "To change the topology from here, open the address that dskype ui printed: it has a token.");
  const button = (text, path, question) => el("button", { type: "button", onclick: () => change(path, question) }, text);
  return [
    page.status === "INACTIVE" ? button("activate", "/activate") : button("deactivate", "/deactivate"),
    button("rebalance", `/rebalance/${page.msgTimeout}`, `Rebalance ${page.name}? Its spouts pause for ${page.msgTimeout} s.`),
    button("kill", `/kill/${page.msgTimeout}`, `Kill ${page.name}, ${page.msgTimeout} s from now?`),
  ];
}

const lastError = (row) => (row.lastError ? [el("span", { class: "quiet" }, moment(row.errorTime)), " ", el("span", { class: "bad" }, row.lastError)] : "");

async function render() {
  if (!id) throw final("The address names no topology.");
  const [page, nodes, metrics] = await Promise.all([of(id) + options(), of(id, `/visualization${system()}`), of(id, `/metrics?window=600&sys=${parameters.get("sys") === "true"}`)].map(get));
  document.title = `${page.name} - topology`;
  show("name", page.name);
  show(
    "summary",
    facts([
      ["Status", page.status],
      ["Health", [page.health.state, ...page.health.why].join(": ")],
      ["Uptime", page.uptime],
      ["Submitted", moment(page.submittedTime)],
      ...(page.reportAgeSeconds === null ? [] : [["Numbers are from", `${Math.round(page.reportAgeSeconds)} s ago`]]),
      ["Owner", page.owner],
      ["Workers", page.workersTotal],
      ["Executors", page.executorsTotal],
      ["Tasks", page.tasksTotal],
      ["Id", page.id],
      ["Logs", link(`logs.html?id=${page.encodedId}`, "of its executors")],
    ]),
  );
  show("actions", actions(page));
  show("choices", choices("topology.html"));
  drawGraph(document.getElementById("graph"), nodes, rates(metrics, page.ageSeconds));
  const settled = [
    ["Acked", (c) => (page.ackers || c.acked ? c.acked : "–"), "number"],
    ["Failed", (c) => (page.ackers || c.failed ? c.failed : "–"), "number"],
  ];
  show(
    "stats",
    table(
      [
        ["Window", (s) => s.windowPretty],
        ["Emitted", (s) => s.emitted, "number"],
        ["Transferred", (s) => s.transferred, "number"],
        ["Complete latency (ms)", (s) => latency(s.completeLatency, s.acked + s.failed), "number"],
        ...settled,
      ],
      page.topologyStats,
    ),
  );
  const counts = [
    ["Executors", (c) => c.executors, "number"],
    ["Tasks", (c) => c.tasks, "number"],
    ["Emitted", (c) => c.emitted, "number"],
    ["Transferred", (c) => c.transferred, "number"],
  ];
  const ends = [...settled, ["Last error", lastError, "long"]];
  const complete = ["Complete latency (ms)", (s) => latency(s.completeLatency, s.acked + s.failed), "number"];
  show("spouts", table([["Spout", (s) => link(componentPage(s.spoutId), s.spoutId)], ...counts, complete, ...ends], page.spouts));
  show(
    "bolts",
    table(
      [
        ["Bolt", (b) => link(componentPage(b.boltId), b.boltId)],
        ...counts,
        ["Capacity", (b) => b.capacity, "number"],
        ["Executed", (b) => b.executed, "number"],
        ["Execute latency (ms)", (b) => latency(b.executeLatency, b.executed), "number"],
        ["Process latency (ms)", (b) => latency(b.processLatency, b.acked), "number"],
        ...ends,
      ],
      page.bolts,
    ),
  );
  show(
    "workers",
    table(
      [
        ["Host", (w) => w.host],
        ["Port", (w) => String(w.port), "number"],
        ["Executors", (w) => w.executorsTotal, "number"],
        ["Tasks", (w) => Object.entries(w.componentNumTasks).map(([c, n]) => `${c}: ${n}`).join(", ")],
      ],
      page.workers,
    ),
  );
  await showEvents(id);
  show("configuration", table([["Key", ([key]) => key], ["Value", ([, value]) => el("code", {}, JSON.stringify(value))]], Object.entries(page.configuration).sort()));
}

keep(render);
