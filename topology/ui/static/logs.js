// The logs of a topology's executors: the end of one is renewed; earlier parts are read on demand.

import { address, final, getFrom, keep, parameters } from "./api.js";
import { count, el, link, moment, show, table } from "./dom.js";

const id = parameters.get("id") ?? "";
const file = parameters.get("file");
const MOST_BYTES = 1 << 20; // the server answers with so many at once
const api = (rest) => getFrom(`/api/ui/topology/${encodeURIComponent(id)}/${rest}`);
const partOf = (more = "") => api(`log?file=${encodeURIComponent(file)}${more}`);
const text = document.getElementById("text");
let earlier = null; // lines before the end that is renewed: their text, and where in the file they start and end

function shown(part) {
  const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
  text.textContent = part.text;
  if (atEnd) text.scrollTop = text.scrollHeight;
}

async function readEarlier(start) {
  const part = await partOf(`&end=${start}`);
  earlier = { text: part.text + (earlier?.text ?? ""), start: part.start, end: earlier?.end ?? start };
  await render();
}

/** Return what is to be shown: the end of the log, and before it the earlier lines that were asked for. */
async function read() {
  const last = await partOf();
  const grown = last.size - earlier?.end;
  if (grown < 0 || grown > MOST_BYTES) earlier = null; // the log was begun anew, or is far ahead
  if (!earlier) return last;
  const rest = await partOf(`&end=${last.size}&bytes=${Math.max(1, grown)}`);
  return { ...rest, text: earlier.text + rest.text, start: earlier.start };
}

async function render() {
  if (!id) throw final("The address names no topology.");
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
  const part = await read();
  const problem = (error) => show("problem", el("p", { class: "problem", role: "alert" }, error.message));
  const more = el("button", { type: "button", onclick: () => readEarlier(part.start).catch(problem) }, "earlier lines");
  show("choices", el("p", { class: "quiet" }, `bytes ${count(part.start)} to ${count(part.end)} of ${count(part.size)} `, part.start > 0 ? more : ""));
  shown(part);
}

keep(render);
