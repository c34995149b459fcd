// The REST API, the token for changes, and pages that renew themselves.

import { count, el, moment, rate, show } from "./dom.js";

const EVERY_MS = 5000;
const HEALTH_EVERY_MS = 2000;
const PATIENCE_MS = 5000; // for the answer about health, which waits for nothing

// The address that `dskype ui` prints ends with #token=...; it stays in this tab, and leaves the address.
function takeToken() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const given = parts.get("token");
  if (!given) return false;
  sessionStorage.setItem("token", given);
  parts.delete("token");
  history.replaceState(null, "", location.pathname + location.search + (parts.size ? `#${parts}` : ""));
  return true;
}
takeToken();
// The address was opened in a tab that shows this page already.
addEventListener("hashchange", () => takeToken() && location.reload());

export const token = () => sessionStorage.getItem("token");
export const parameters = new URLSearchParams(location.search);

async function answer(response) {
  const data = await response.json();
  if (!response.ok) throw Object.assign(new Error(data.errorMessage ?? data.error), { gone: data.notAlive === true });
  return data;
}

/** Return an error after which a page need not ask again. */
export const final = (text) => Object.assign(new Error(text), { gone: true });

/** Return the header that shows the token: changes need one, and reading does where there are tenants. */
export const authorized = () => (token() ? { Authorization: `Bearer ${token()}` } : {});

/** Return the answer of a path of the server. */
export const getFrom = async (path) => answer(await fetch(path, { headers: authorized() }));

/** Send a change to a path of the server, which needs the token. */
export const postTo = async (path, body) =>
  answer(
    await fetch(path, {
      method: "POST",
      headers: { ...authorized(), "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    }),
  );

/** Return the answer of a path of Storm's API. */
export const get = (path) => getFrom(`/api/v1/${path}`);

/** Send a change to a path of Storm's API. */
export const post = (path, body) => postTo(`/api/v1/${path}`, body);

/** Return a path of the API about a topology. */
export const of = (id, rest = "") => `topology/${encodeURIComponent(id)}${rest}`;

/** Return what pages add to their requests: the window, and whether to show system components. */
export const options = () => `?window=${encodeURIComponent(parameters.get("window") ?? ":all-time")}&sys=${parameters.get("sys") === "true"}`;

/** Return the address of a page with some parameters changed. */
export function address(page, changes) {
  const query = new URLSearchParams(parameters);
  for (const [name, value] of Object.entries(changes)) value === null ? query.delete(name) : query.set(name, value);
  return `${page}?${query}`;
}

/** Add links to the pages of extensions to the header of every page. */
async function addLinks() {
  const { pages } = await getFrom("/api/ui/pages");
  const header = document.querySelector("header");
  header.prepend(...pages.map(({ title, path }) => el("a", { href: path }, title)));
  for (const link of header.querySelectorAll("a")) if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
}
addLinks().catch(() => {}); // the page itself says that the server does not answer

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Show a page, again every five seconds while it is visible; a problem is shown above it. What is gone is not asked for again. */
export async function keep(render) {
  for (;;) {
    if (!document.hidden) {
      try {
        await render();
        show("problem");
        document.body.dataset.state = "shown";
      } catch (error) {
        const said = error.gone ? error.message : `The UI has no answer: ${error.message}`;
        show("problem", error.gone || health.brokers ? el("p", { class: "problem", role: "alert" }, said) : ""); // that the brokers are silent is said above
        document.body.dataset.state = error.gone ? "gone" : "problem";
        if (error.gone) return;
      }
    }
    await pause(EVERY_MS);
  }
}

/** What the server has just said of itself: whether the brokers answer it, and what is wrong. `changed` events come with each answer. */
export const health = Object.assign(new EventTarget(), { brokers: true, heardMs: Date.now(), problems: [], topologies: null });

const healthBox = document.querySelector("header").insertAdjacentElement("afterend", el("div", { id: "health" }));
const WORDS = { stuck: "Stuck", behind: "Behind", unknown: "Not known" };

const FLOWS = "records/s: what the spouts of a topology have just taken from their topics per second; wait: records that they have not taken yet";

/** Return the line of a server that has nothing to complain of: what it has just seen, and when. */
function allWell(topologies) {
  if (topologies === null) return el("p", { class: "state asking" }, "Asking the server how it is...");
  const running = topologies.filter(({ status, health }) => status === "ACTIVE" && health.state === "running");
  const others = topologies.filter((one) => !running.includes(one)).map(({ name, status, health }) => `${name} is ${health.state === "starting" ? "starting" : status.toLowerCase()}`);
  const flows = running.map(({ name, waiting, takenPerSecond }) => `${name}${takenPerSecond === null ? "" : `: ${rate(takenPerSecond)} records/s`}${waiting ? `, ${count(waiting)} wait` : ""}`);
  const said = [...flows, ...others].join("; ") || "no topology runs";
  return el("p", { class: `state ${running.length && !others.length ? "running" : "asking"}`, title: FLOWS }, el("b", {}, running.length ? "Running" : "Nothing runs"), ` ${said}. `, el("span", { class: "quiet" }, `Seen at ${moment(health.heardMs / 1000).slice(11)}.`));
}

function showHealth() {
  const told = new Set([...healthBox.children].map((line) => line.dataset.about)); // these are renewed without being read out again
  const lines = health.problems.map(({ state, what, sinceMs, topology }) => {
    const about = `${state} ${topology}`;
    const since = sinceMs === null ? "" : el("span", { class: "quiet" }, ` Since ${moment(sinceMs / 1000)}.`);
    return el("p", { class: `problem ${state}`, "data-about": about, role: told.has(about) ? null : "alert" }, el("b", {}, `${WORDS[state]}. `), what, since);
  });
  healthBox.replaceChildren(...(lines.length ? lines : [allWell(health.topologies)]));
  document.body.dataset.numbers = health.problems.some(({ numbersOld }) => numbersOld) ? "old" : "new";
  health.dispatchEvent(new Event("changed"));
}

/** Ask the server how it is. */
async function askHealth() {
  try {
    const response = await fetch("/api/ui/health", { signal: AbortSignal.timeout(PATIENCE_MS) });
    const { brokers, problems, topologies } = await response.json();
    Object.assign(health, { brokers: brokers.answer !== false, heardMs: Date.now(), problems, topologies: brokers.answer === null ? null : topologies });
  } catch {
    const what = "The web server of this page does not answer. Does 'dskype ui' run? What is shown is from that time; the page goes on by itself when it answers again.";
    Object.assign(health, { brokers: false, problems: [{ state: "unknown", what, sinceMs: health.heardMs, topology: null, numbersOld: true }] });
  }
  showHealth();
}

/** Ask every two seconds while the page is visible. One that was hidden says nothing of then. */
async function watchHealth() {
  healthBox.replaceChildren(allWell(null));
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || Date.now() - health.heardMs < 2 * HEALTH_EVERY_MS) return;
    healthBox.replaceChildren(allWell(null));
    askHealth();
  });
  for (;;) {
    if (!document.hidden) await askHealth();
    await pause(HEALTH_EVERY_MS);
  }
}
watchHealth();

/** Return the links that choose the window and the system components of a page. */
export function choices(page) {
  const now = parameters.get("window") ?? ":all-time";
  const windows = [["600", "10 minutes"], ["10800", "3 hours"], ["86400", "1 day"], [":all-time", "all time"]];
  const system = parameters.get("sys") === "true";
  return el(
    "nav",
    { class: "choices", "aria-label": "what is shown" },
    windows.map(([key, text]) => el("a", { href: address(page, { window: key }), "aria-current": key === now ? "true" : null }, text)),
    el("a", { href: address(page, { sys: String(!system) }) }, system ? "hide system components" : "show system components"),
  );
}
