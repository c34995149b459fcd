// The page of a topology.

import { choices, get, keep, of, options, parameters, post, token } from "./api.js";
import { el, facts, link, moment, show, table } from "./dom.js";
import { graph } from "./graph.js";

const id = parameters.get("id") ?? "";
const componentPage = (component) => `component.html?id=${encodeURIComponent(component)}&topology_id=${encodeURIComponent(id)}`;
const system = () => `?sys=${parameters.get("sys") === "true"}`;

/** Return `source/stream/target` -> tuples per second over the last ten minutes, or the topology's shorter life. */
export function rates(metrics, uptimeSecs) {
  const secs = Math.max(1, Math.min(600, uptimeSecs));
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

const lastError = (row) => (row.lastError ? el("span", { class: "bad", title: moment(row.errorTime) }, row.lastError) : "");

async function render() {
  const [page, nodes, metrics] = await Promise.all([of(id) + options(), of(id, `/visualization${system()}`), of(id, `/metrics?window=600&sys=${parameters.get("sys") === "true"}`)].map(get));
  document.title = `${page.name} - topology`;
  show("name", page.name);
  show(
    "summary",
    facts([
      ["Status", page.status],
      ["Health", page.driverAlive === false ? "its process has ended" : [page.health.state, ...page.health.why].filter(Boolean).join(": ")],
      ["Uptime", page.uptime],
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
  show("graph", Object.keys(nodes).length ? graph(nodes, rates(metrics, page.uptimeSeconds)) : "");
  show(
    "stats",
    table(
      [
        ["Window", (s) => s.windowPretty],
        ["Emitted", (s) => s.emitted, "number"],
        ["Transferred", (s) => s.transferred, "number"],
        ["Complete latency (ms)", (s) => s.completeLatency, "number"],
        ["Acked", (s) => s.acked, "number"],
        ["Failed", (s) => s.failed, "number"],
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
  const settled = [
    ["Acked", (c) => c.acked, "number"],
    ["Failed", (c) => c.failed, "number"],
    ["Last error", lastError],
  ];
  show("spouts", table([["Spout", (s) => link(componentPage(s.spoutId), s.spoutId)], ...counts, ["Complete latency (ms)", (s) => s.completeLatency, "number"], ...settled], page.spouts));
  show(
    "bolts",
    table(
      [
        ["Bolt", (b) => link(componentPage(b.boltId), b.boltId)],
        ...counts,
        ["Capacity", (b) => b.capacity, "number"],
        ["Executed", (b) => b.executed, "number"],
        ["Execute latency (ms)", (b) => b.executeLatency, "number"],
        ["Process latency (ms)", (b) => b.processLatency, "number"],
        ...settled,
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
  show("configuration", table([["Key", ([key]) => key], ["Value", ([, value]) => el("code", {}, JSON.stringify(value))]], Object.entries(page.configuration).sort()));
}

keep(render);
