// The page of a component: its windows, streams, executors and errors.

import { choices, final, get, keep, of, options, parameters } from "./api.js";
import { el, facts, latency, link, moment, show, table } from "./dom.js";

const topology = parameters.get("topology_id") ?? "";
const component = parameters.get("id") ?? "";

const number = (heading, key) => [heading, (row) => row[key], "number"];
const OUT = [number("Emitted", "emitted"), number("Transferred", "transferred")];
const IN = [
  number("Executed", "executed"),
  ["Execute latency (ms)", (row) => latency(row.executeLatency, row.executed), "number"],
  ["Process latency (ms)", (row) => latency(row.processLatency, row.acked), "number"],
];
const COMPLETE = ["Complete latency (ms)", (row) => latency(row.completeLatency, row.acked + row.failed), "number"];

keep(async () => {
  if (!topology || !component) throw final("The address names no component of a topology.");
  const page = await get(of(topology, `/component/${encodeURIComponent(component)}`) + options());
  const spout = page.componentType === "spout";
  const SETTLED = [
    ["Acked", (row) => (page.ackers || row.acked ? row.acked : "–"), "number"],
    ["Failed", (row) => (page.ackers || row.failed ? row.failed : "–"), "number"],
  ];
  const numbers = spout ? [...OUT, COMPLETE, ...SETTLED] : [...OUT, ...IN, ...SETTLED];
  document.title = `${page.id} - ${page.name}`;
  show("name", page.id);
  show("topology", link(`topology.html?id=${page.encodedTopologyId}`, page.name));
  show(
    "summary",
    facts([
      ["Kind", page.componentType],
      ["Executors", page.executors],
      ["Tasks", page.tasks],
      ["Topology is", page.topologyStatus],
    ]),
  );
  show("choices", choices("component.html"));
  show("windows", table([["Window", (w) => w.windowPretty], ...numbers], spout ? page.spoutSummary : page.boltStats));
  show(
    "inputs",
    spout ? el("p", { class: "quiet" }, "a spout has no inputs") : table([["Component", (i) => i.component], ["Stream", (i) => i.stream], ...IN, ...SETTLED], page.inputStats),
  );
  show("outputs", table([["Stream", (o) => o.stream], ...OUT, ...(spout ? [COMPLETE, ...SETTLED] : [])], page.outputStats));
  show(
    "executors",
    table(
      [["Tasks", (e) => e.id], ["Host", (e) => e.host], ["Port", (e) => String(e.port), "number"], ...(spout ? [] : [number("Capacity", "capacity")]), ...numbers],
      page.executorStats,
    ),
  );
  show(
    "errors",
    table(
      [
        ["Time", (e) => moment(e.errorTime)],
        ["Where", (e) => `${e.errorHost}:${e.errorPort ?? ""}`],
        ["Error", (e) => el("pre", {}, e.error)],
      ],
      page.componentErrors,
      "no errors",
    ),
  );
});
