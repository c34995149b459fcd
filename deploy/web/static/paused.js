// Subscriptions that are paused: unregistered, and kept in this browser until they go on. The topology knows nothing of them.

import { getFrom, postTo } from "/static/api.js";
import { path, topology } from "/static/dskype/page.js";

export const PAUSED = "Paused in this browser alone: for everyone else it is removed. No results are collected; it goes on with what comes then.";

/** The fields of a registered subscription that say how it is; `update` goes on from a record that is gone. */
const HOW = new Set("id status since registration registered_ms limit limited_ms error update".split(" "));

const key = () => `dskype.paused.${topology()}`;

/** Return id -> fields of the subscriptions that are paused. */
export function paused() {
  try {
    return new Map(Object.entries(JSON.parse(localStorage.getItem(key()) ?? "{}")));
  } catch {
    return new Map(); // someone else wrote it
  }
}

function keep(id, fields) {
  const all = paused();
  if (fields) all.set(id, fields);
  else all.delete(id);
  localStorage.setItem(key(), JSON.stringify(Object.fromEntries(all)));
}

export const forget = (id) => keep(id, null);

/** Return the answer with the registered subscription of an id, if there is one. */
const asked = (id) => getFrom(path("subscriptions", { id }));

/** Unregister a subscription, and keep its fields; one that could not be registered again stays. */
export async function pause(id) {
  const { time_ms, subscriptions: [one] } = await asked(id);
  if (!one || one.status === "expired") throw new Error(`There is no subscription ${id}.`);
  const fields = Object.fromEntries(Object.entries(one).filter(([name]) => !HOW.has(name)));
  if (fields.ttl_s !== undefined) fields.ttl_s = Math.max(1, fields.ttl_s - (time_ms - one.registered_ms) / 1000);
  const { error } = await getFrom(path("draft", { fields: JSON.stringify(fields) }));
  if (error) throw new Error(`The subscription ${id} cannot be paused, because it could not be registered again: ${error}`);
  keep(id, fields);
  try {
    await postTo(path("subscriptions/remove"), { id });
  } catch (problem) {
    forget(id);
    throw problem;
  }
}

/** Register a paused subscription again and return its fields, unless there is one of its id by now: then that stays. */
export async function resume(id) {
  const fields = paused().get(id);
  const { subscriptions } = await asked(id);
  if (!subscriptions.length) await postTo(path("subscriptions"), { id, ...fields });
  forget(id);
  if (subscriptions.length) throw new Error(`There is a subscription ${id} again, which stays as it is. The paused one is forgotten.`);
  return fields;
}
