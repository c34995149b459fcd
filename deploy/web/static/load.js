// What a topology moves and how evenly: now, over time, and task by task. uPlot draws the charts.

import { authorized, getFrom, keep, token } from "/static/api.js";
import { count, el, facts, rate, show, table } from "/static/dom.js";
import { colour } from "/static/dskype/colours.js";
import { offerTopologies, path } from "/static/dskype/page.js";

const HEIGHT = 190;
const LINES = ["--accent", "--pin", "--here", "--first", "--quiet"];
const TASKS = 12; // lines of a chart

const CHARTS = [
  { title: "Throughput (per second)", series: [["messages", "messages_per_second"], ["tuples to tasks", "tuples_per_second"]] },
  { title: "Communication (tuples per message)", series: [["tuples per message", "tuples_per_message"]] },
  { title: "Communication (bytes per second)", series: [["bytes to tasks", "bytes_per_second"]] },
  { title: "Replication (tasks per subscription)", series: [["replication", "replication"]] },
  { title: "Arrival to matched (ms)", series: [["p50", "p50_ms"], ["p99", "p99_ms"]] },
  { title: "Busy time of each task (%)", tasks: "busy", share: true },
];

/** Return a function that shows a value as `text` does, and one that is not known as a dash. */
const known = (text) => (value) => (value === null || value === undefined ? "–" : text(value));

const amount = known(count);
const perSecond = known(rate);
const figure = known((value) => value.toFixed(2));
const percent = known((share) => `${(share * 100).toFixed(1)} %`);
const clock = (secs) => new Date(secs * 1000).toLocaleTimeString("sv-SE");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

const boxOf = ({ title }) => el("figure", { class: "chart" }, el("figcaption", {}, title));
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

function now({ messages, communication, replication, balance, latency }, target) {
  if (!messages) return el("p", { class: "quiet" }, "No task has reported messages yet.");
  const matched = latency.find(({ component }) => component === target);
  return facts([
    ["Messages", amount(messages.processed), "that were distributed to tasks, since the topology was first submitted"],
    ["Messages per second", perSecond(messages.per_second), "over the last minute"],
    ["Tuples per message", figure(communication.tuples_per_message), "communication cost: to how many tasks of the subscription bolt a message was sent, on average since the first submission"],
    ["Tuples per message now", figure(communication.tuples_per_message_now), "the same over the last minute"],
    ["Subscriptions", amount(replication.subscriptions), "that are registered; a dash where they are replicated and not counted"],
    ["Tasks per subscription", figure(replication.ratio), "replication: how many tasks have a subscription, on average"],
    ["Balance of subscriptions", figure(balance.subscriptions), "subscriptions of the task that has most, over the mean of all tasks; 1 is even"],
    ["Balance of messages", figure(balance.messages), "messages of the task that gets most, over the mean of all tasks; 1 is even"],
    ["Balance of busy time", figure(balance.busy), "time of the task that works most, over the mean of all tasks; 1 is even"],
    ...(matched ? [["Arrival to matched", `p50 ${amount(matched.p50_ms)} ms, p99 ${amount(matched.p99_ms)} ms`, "from the arrival of a message in Kafka until all tasks had passed it, over the last minute; writing results is not in it"]] : []),
  ]);
}

const bar = (share) => el("meter", { min: 0, max: 1, value: Math.min(1, share ?? 0), title: percent(share) });

let shown = null; // the plan, as JSON

async function showPlan() {
  const plan = await getFrom(path("partitions")).catch(() => null);
  if (!plan && shown === null) show("plan", el("p", { class: "quiet" }, "The plan of the topology is not known."));
  if (!plan || JSON.stringify(plan) === shown) return;
  shown = JSON.stringify(plan);
  const address = path("plan.svg", { version: plan.version });
  // An image shows no token, so a page that has one asks for the picture itself.
  const src = token() && plan.partitions.length ? `data:image/svg+xml,${encodeURIComponent(await (await fetch(address, { headers: authorized() })).text())}` : address;
  const picture = () => el("img", { src, alt: "the partitions of the plan, a colour for each task" });
  show(
    "plan",
    facts([["Distributor", plan.distributor], ["Version", String(plan.version)], ["Partitions", plan.partitions.length], ["Greatest load / mean, expected", figure(plan.balance), "by the loads that the plan was made for"]]),
    plan.partitions.length ? picture() : "",
  );
}

async function render() {
  const [measures, trend] = await Promise.all(["measures", "trend"].map((name) => getFrom(path(name))));
  const matching = measures.streams.find(({ stream }) => stream === "matching");
  show("now", now(measures, matching?.target));
  CHARTS.forEach((chart) => draw(chart, trend));
  const received = new Map((matching?.tasks ?? []).map(({ task, tuples }) => [task, tuples]));
  const tasks = measures.components.find(({ component }) => component === matching?.target)?.tasks ?? [];
  show(
    "tasks",
    table(
      [
        ["Task", (t) => String(t.task), "number"],
        ["Subscriptions", (t) => amount(t.subscriptions), "number"],
        ["Messages received", (t) => amount(received.get(t.task)), "number"],
        ["Busy (s)", (t) => known((secs) => secs.toFixed(1))(t.busy_s), "number", "time in the bolt's code, since the first submission"],
        ["Busy now", (t) => percent(t.busy), "number", "share of the last minute in the bolt's code"],
        ["", (t) => bar(t.busy)],
        ["Watermark", (t) => amount(t.watermark), "number", "up to where the task has seen everything: the number of a message, or a time in ms since the epoch"],
      ],
      tasks,
    ),
  );
  show(
    "streams",
    table(
      [
        ["Stream", (s) => s.stream],
        ["From", (s) => s.source],
        ["To", (s) => s.target],
        ["Tuples", (s) => s.tuples, "number"],
        ["Per second", (s) => perSecond(s.tuples_per_second), "number"],
        ["Bytes", (s) => s.bytes, "number"],
        ["Bytes per second", (s) => perSecond(s.bytes_per_second), "number"],
      ],
      measures.streams,
    ),
  );
}

let offered = false;
keep(async () => {
  if (!offered) await offerTopologies();
  offered = true;
  await Promise.all([render(), showPlan()]);
});
