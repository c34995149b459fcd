// What a topology moves and how evenly: now, over time, and task by task. uPlot draws the charts.

import { authorized, getFrom, keep, token } from "/static/api.js";
import { count, el, facts, moment, rate, show, table, term } from "/static/dom.js";
import { showEvents } from "/static/events.js";
import { colour } from "/static/dskype/colours.js";
import { showFlows } from "/static/dskype/flows.js";
import { offerTopologies, path } from "/static/dskype/page.js";

const HEIGHT = 190;
const LINES = ["--accent", "--pin", "--here", "--first", "--quiet"];
const TASKS = 12; // lines of a chart
const DAY_S = 86_400;
const NEAR_S = 600; // what is so near to a day ago is yesterday's

const CHARTS = [
  { title: "Throughput (per second)", what: "messages that were distributed, and copies of them that reached tasks of the subscription bolt, per second; a value is of the five seconds before it", series: [["messages", "messages_per_second"], ["tuples to tasks", "tuples_per_second"]] },
  { title: "Communication (tuples per message)", what: "to how many tasks of the subscription bolt a message was sent", series: [["tuples per message", "tuples_per_message"]] },
  { title: "Communication (bytes per second)", what: "bytes of messages that reached tasks of the subscription bolt", series: [["bytes to tasks", "bytes_per_second"]] },
  { title: "Replication (tasks per subscription)", what: "how many tasks have a subscription, on average", series: [["replication", "replication"]] },
  { title: "Arrival to matched (ms)", what: "from the arrival of a message in Kafka until all tasks had passed it, of the minute before: half of the messages took at most p50, and 99 of 100 at most p99", series: [["p50", "p50_ms"], ["p99", "p99_ms"]] },
  { title: "Busy time of each task (%)", what: "share of the time that a task spent in the code of the subscription bolt", tasks: "busy", share: true },
];

/** Return a function that shows a value as `text` does, and one that is not known as a dash. */
const known = (text) => (value) => (value === null || value === undefined ? "–" : text(value));

const amount = known(count);
const perSecond = known(rate);
const figure = known((value) => value.toFixed(2));
const percent = known((share) => `${(share * 100).toFixed(1)} %`);
const clock = (secs) => new Date(secs * 1000).toLocaleTimeString("sv-SE");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

const boxOf = ({ title, what }) => el("figure", { class: "chart" }, el("figcaption", {}, term(title, what)));
const drawn = new Map(CHARTS.map((chart) => [chart.title, { box: boxOf(chart) }]));
show("charts", ...[...drawn.values()].map(({ box }) => box)); // all of them, so that each has its width before it is drawn

/** Return what a chart shows: names and columns, of the busiest tasks where there are many. */
function content({ series, tasks, share }, trend) {
  if (series) return series.map(([label, key]) => [label, trend[key]]);
  const sum = (column) => column.reduce((total, value) => total + (value ?? 0), 0);
  const busiest = [...trend.tasks].sort((a, b) => sum(b[tasks]) - sum(a[tasks])).slice(0, TASKS);
  return busiest.sort((a, b) => a.task - b.task).map((task) => [`task ${task.task}`, share ? task[tasks].map((value) => (value === null ? null : value * 100)) : task[tasks]]);
}

/** Let the legend have the newest values, unless the mouse asks for others. */
function showNewest(plot) {
  if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idx: plot.data[0].length - 1 }, false);
}

function draw(chart, trend) {
  const lines = content(chart, trend);
  const data = [trend.time_s, ...lines.map(([, column]) => column)];
  const labels = lines.map(([label]) => label).join();
  const before = drawn.get(chart.title);
  if (before.labels === labels) {
    before.plot.setData(data);
    return showNewest(before.plot);
  }
  before.plot?.destroy();
  const { box } = before;
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  const tint = (i) => (chart.tasks ? `hsl(${Math.round((360 * i * 0.618034) % 360)} 60% 50%)` : colour(LINES[i]));
  const options = {
    width: box.clientWidth || 320,
    height: HEIGHT,
    cursor: { drag: { x: false, y: false } },
    legend: { live: true },
    hooks: { setCursor: [showNewest] },
    scales: { y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, space: 70, values: (_, times) => times.map(clock) }, { ...axis, size: 48, values: (_, values) => values.map((v) => short.format(v)) }],
    series: [{ label: "time", value: (_, secs) => known(clock)(secs) }, ...lines.map(([label], i) => ({ label, stroke: tint(i), width: 1.5, spanGaps: false, points: { show: data[0].length < 3 }, value: (_, value) => perSecond(value) }))],
  };
  const plot = new uPlot(options, data, box);
  drawn.set(chart.title, { plot, box, labels });
  requestAnimationFrame(() => showNewest(plot)); // the first drawing empties the legend
}

addEventListener("resize", () => {
  for (const { plot, box } of drawn.values()) plot?.setSize({ width: box.clientWidth, height: HEIGHT });
});

/** Return a value as `text` shows it, and what it was earlier, if that is known. */
function versus(text, value, before) {
  if (before === null || before === undefined) return text(value);
  const change = before > 0 && typeof value === "number" ? `, ${value < before ? "−" : "+"}${Math.abs(100 * (value / before - 1)).toFixed(value > 10 * before ? 0 : 1)} %` : "";
  return el("span", {}, text(value), el("span", { class: "then" }, `was ${text(before)}${change}`));
}

const matchedBy = (measures, target) => measures?.latency.find(({ component }) => component === target);

function now(measures, target, then) {
  const { messages, communication, replication, balance } = measures;
  if (!messages) return el("p", { class: "quiet" }, "No task has reported messages yet.");
  const [matched, before] = [matchedBy(measures, target), matchedBy(then, target)];
  const quantile = (name) => versus(known((ms) => `${count(ms)} ms`), matched[name], before?.[name]);
  return facts([
    ["Messages", versus(amount, messages.processed, then?.messages?.processed), "that were distributed to tasks, since the topology was first submitted"],
    ["Messages per second", versus(perSecond, messages.per_second, then?.messages?.per_second), "over the last minute"],
    ["Tuples per message", versus(figure, communication.tuples_per_message, then?.communication?.tuples_per_message), "communication cost: to how many tasks of the subscription bolt a message was sent, on average since the first submission"],
    ["Tuples per message now", versus(figure, communication.tuples_per_message_now, then?.communication?.tuples_per_message_now), "the same over the last minute"],
    ["Subscriptions", versus(amount, replication.subscriptions, then?.replication?.subscriptions), "that are registered; a dash where they are replicated and not counted"],
    ["Tasks per subscription", versus(figure, replication.ratio, then?.replication?.ratio), "replication: how many tasks have a subscription, on average"],
    ["Balance of subscriptions", versus(figure, balance.subscriptions, then?.balance?.subscriptions), "subscriptions of the task that has most, over the mean of all tasks; 1 is even"],
    ["Balance of messages", versus(figure, balance.messages, then?.balance?.messages), "messages of the task that gets most, over the mean of all tasks; 1 is even"],
    ["Balance of busy time", versus(figure, balance.busy, then?.balance?.busy), "time of the task that works most, over the mean of all tasks; 1 is even"],
    ...(matched
      ? [
          ["Arrival to matched, p50", quantile("p50_ms"), "from the arrival of a message in Kafka until all tasks had passed it: half of the messages of the last minute took at most so long; writing results is not in it"],
          ["Arrival to matched, p99", quantile("p99_ms"), "the same for 99 of 100 messages"],
        ]
      : []),
  ]);
}

const bar = (share) => el("meter", { min: 0, max: 1, value: Math.min(1, share ?? 0), title: percent(share) });

let shown = null; // the plan, and the numbers that it is compared with, as JSON

/** Show the plan, and how it differs from that which was in force at an earlier time. */
async function showPlan(then) {
  const plan = await getFrom(path("partitions")).catch(() => null);
  const before = then?.plan ?? null;
  if (!plan && shown === null) show("plan", el("p", { class: "quiet" }, "The plan of the topology is not known."));
  if (!plan || JSON.stringify([plan, before]) === shown) return;
  shown = JSON.stringify([plan, before]);
  const address = path("plan.svg", { version: plan.version });
  // An image shows no token, so a page that has one asks for the picture itself.
  const src = token() && plan.partitions.length ? `data:image/svg+xml,${encodeURIComponent(await (await fetch(address, { headers: authorized() })).text())}` : address;
  const picture = () => el("img", { src, alt: "the partitions of the plan, a colour for each task" });
  show(
    "plan",
    facts([
      ["Distributor", plan.distributor],
      ["Version", versus(String, String(plan.version), before?.version), "of the plan: each change of it raises the number"],
      ["Partitions", versus(amount, plan.partitions.length, before?.partitions), "parts of the plan, each of which belongs to some tasks"],
      ["Greatest load / mean, expected", versus(figure, plan.balance, before?.balance), "by the loads that the plan was made for"],
    ]),
    before && before.balance === null ? el("p", { class: "quiet" }, `Kafka no longer has version ${before.version}, which was in force then, so its partitions and loads cannot be compared.`) : "",
    plan.partitions.length ? picture() : "",
  );
}

const compare = document.querySelector("[name=compare]");
compare.addEventListener("change", () => render().catch(() => {})); // what is wrong is said when the page renews itself

/** Offer to compare with what was measured earlier; return that, or null if it is not wanted, or nothing is kept. */
function wantedOf(earlier, { time_ms }) {
  document.getElementById("compare").hidden = !earlier;
  if (!earlier) return null;
  const ago_s = (time_ms - earlier.time_ms) / 1000;
  const when = moment(earlier.time_ms / 1000).slice(0, -3);
  show("earlier", Math.abs(ago_s - DAY_S) <= NEAR_S ? `compare with a day ago, ${when}` : `compare with ${when}, ${ago_s < DAY_S ? "the oldest" : "the nearest to a day ago"} that is kept`);
  return compare.checked ? earlier : null;
}

const taskRows = (measures, target) => measures?.components.find(({ component }) => component === target)?.tasks ?? [];
const receivedBy = (measures) => new Map((measures?.streams.find(({ stream }) => stream === "matching")?.tasks ?? []).map(({ task, tuples }) => [task, tuples]));

async function render() {
  const [measures, trend, earlier, { flows }] = await Promise.all([path("measures"), path("trend"), path("measures", { ago_s: DAY_S }), path("flows")].map(getFrom));
  const then = wantedOf(earlier, measures);
  const planned = showPlan(then);
  const matching = measures.streams.find(({ stream }) => stream === "matching");
  show("now", now(measures, matching?.target, then));
  CHARTS.forEach((chart) => draw(chart, trend));
  const [received, receivedThen] = [receivedBy(measures), receivedBy(then)];
  const tasksThen = new Map(taskRows(then, matching?.target).map((row) => [row.task, row]));
  const of = (text, name) => (t) => versus(text, t[name], tasksThen.get(t.task)?.[name]);
  const nameOf = ({ stream, source, target }) => `${source}/${stream}/${target}`;
  const streamsThen = new Map((then?.streams ?? []).map((row) => [nameOf(row), row]));
  const moved = (text, name) => (s) => versus(text, s[name], streamsThen.get(nameOf(s))?.[name]);
  show(
    "tasks",
    table(
      [
        ["Task", (t) => String(t.task), "number", "its number in the topology"],
        ["Subscriptions", of(amount, "subscriptions"), "number", "that live on the task"],
        ["Messages received", (t) => versus(amount, received.get(t.task), receivedThen.get(t.task)), "number", "that were sent to the task, since the first submission"],
        ["Busy (s)", of(known((secs) => secs.toFixed(1)), "busy_s"), "number", "time in the bolt's code, since the first submission"],
        ["Busy now", of(percent, "busy"), "number", "share of the last minute in the bolt's code"],
        ["", (t) => bar(t.busy)],
        ["Watermark", of(amount, "watermark"), "number", "up to where the task has seen everything: the number of a message, or a time in ms since the epoch"],
      ],
      taskRows(measures, matching?.target),
    ),
  );
  show(
    "streams",
    table(
      [
        ["Stream", (s) => s.stream],
        ["From", (s) => s.source],
        ["To", (s) => s.target],
        ["Tuples", moved(amount, "tuples"), "number", "that tasks have received, since the first submission"],
        ["Per second", moved(perSecond, "tuples_per_second"), "number", "tuples per second, over the last minute"],
        ["Bytes", moved(amount, "bytes"), "number", "of the frames that brought these tuples, since the first submission"],
        ["Bytes per second", moved(perSecond, "bytes_per_second"), "number", "the same over the last minute"],
      ],
      measures.streams,
    ),
  );
  showFlows(flows);
  await Promise.all([planned, showEvents(measures.id)]);
}

let offered = false;
keep(async () => {
  if (!offered) await offerTopologies();
  offered = true;
  await render();
});
