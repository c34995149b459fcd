// The logs of a topology's executors: the end of one is renewed; earlier parts are read on demand.

import { address, getFrom, keep, parameters } from "./api.js";
import { count, el, link, moment, show, table } from "./dom.js";

const id = parameters.get("id") ?? "";
const file = parameters.get("file");
const api = (rest) => getFrom(`/api/ui/topology/${encodeURIComponent(id)}/${rest}`);
let earlier = ""; // what was read before the end that is renewed
let from = null; // where in the file it begins

const text = document.getElementById("text");

function shown(part) {
  const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
  text.textContent = earlier + part.text;
  if (atEnd) text.scrollTop = text.scrollHeight;
}

async function readEarlier(before) {
  const part = await api(`log?file=${encodeURIComponent(file)}&end=${from ?? before.start}`);
  earlier = part.text + earlier;
  from = part.start;
  if (anchor === null) anchor = before.start;
  await render();
}

let anchor = null; // where the renewed part begins, once earlier parts are shown

async function render() {
  document.title = `${file ?? "Logs"} - ${id}`;
  show("topology", link(`topology.html?id=${encodeURIComponent(id)}`, id));
  const { here, logs } = await api("logs");
  const rows = [
    ["Log", (row) => (row.file === file ? el("strong", {}, row.file) : link(address("logs.html", { file: row.file }), row.file))],
    ["Bytes", (row) => row.bytes, "number"],
    ["Written", (row) => moment(row.modified_ms / 1000)],
  ];
  show("files", table(rows, logs, here ? "no logs yet" : "The logs are not on this machine: Spark's executors keep them where they run."));
  text.hidden = !file;
  if (!file) return;
  let part = await api(`log?file=${encodeURIComponent(file)}`);
  if (anchor !== null && (part.size < anchor || part.size - anchor > 1 << 20)) [earlier, from, anchor] = ["", null, null]; // begun anew, or far behind
  if (anchor !== null) part = await api(`log?file=${encodeURIComponent(file)}&bytes=${Math.max(1, part.size - anchor)}`);
  const start = from ?? part.start;
  const more = el("button", { type: "button", onclick: () => readEarlier(part).catch((error) => show("problem", el("p", { class: "problem", role: "alert" }, error.message))) }, "earlier lines");
  show("choices", el("p", { class: "quiet" }, `bytes ${count(start)} to ${count(part.end)} of ${count(part.size)} `, start > 0 ? more : ""));
  shown(part);
}

keep(render);
