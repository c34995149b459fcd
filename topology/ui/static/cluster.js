// The first page: the cluster and its topologies.

import { get, keep } from "./api.js";
import { el, facts, link, moment, show, table } from "./dom.js";

const topologyPage = (id) => `topology.html?id=${encodeURIComponent(id)}`;

const health = ({ health: { state, why } }) => el("span", { class: ["running", "starting"].includes(state) ? "" : "bad", title: why.join("\n") }, state);

keep(async () => {
  const [cluster, { topologies }, { supervisors }, { nimbuses }, conf] = await Promise.all(
    ["cluster/summary", "topology/summary", "supervisor/summary", "nimbus/summary", "cluster/configuration"].map(get),
  );
  show(
    "cluster",
    facts([
      ["Version", cluster.stormVersion],
      ["Topologies", topologies.length],
      ["Machines", cluster.supervisors],
      ["Workers", cluster.slotsUsed],
      ["Executors", cluster.executorsTotal],
      ["Tasks", cluster.tasksTotal],
    ]),
  );
  show(
    "topologies",
    table(
      [
        ["Name", (t) => link(topologyPage(t.id), t.name)],
        ["Status", (t) => t.status],
        ["Health", health],
        ["Uptime", (t) => el("span", { title: `submitted ${moment(t.submittedTime)}` }, t.uptime)],
        ["Owner", (t) => t.owner],
        ["Workers", (t) => t.workersTotal, "number"],
        ["Executors", (t) => t.executorsTotal, "number"],
        ["Tasks", (t) => t.tasksTotal, "number"],
        ["Id", (t) => t.id, "long"],
      ],
      topologies,
      "No topology runs.",
    ),
  );
  show(
    "machines",
    table(
      [
        ["Host", (s) => s.host],
        ["Uptime", (s) => s.uptime],
        ["Workers", (s) => s.slotsUsed, "number"],
      ],
      supervisors,
    ),
  );
  show(
    "brokers",
    table(
      [
        ["Host", (n) => n.host],
        ["Port", (n) => String(n.port), "number"],
        ["Status", (n) => n.status],
      ],
      nimbuses,
    ),
  );
  show(
    "configuration",
    table(
      [
        ["Key", ([key]) => key],
        ["Value", ([, value]) => el("code", {}, JSON.stringify(value))],
      ],
      Object.entries(conf).sort(),
    ),
  );
});
