// How a result is shown, in a row of a table, and a subscription in words.

import { count, term } from "/static/dom.js";
import { shapesOf } from "/static/dskype/shapes.js";

let halfLifeMs = null; // of the topology: its top-k subscriptions then rank by time scores

/** Note how the topology ranks; see the answer `language`. */
export const rankBy = ({ half_life_ms }) => (halfLifeMs = half_life_ms ?? null);

/** Return what is left of a score at a watermark, of a result of a top-k subscription in a topology with a half-life. Other scores stay as they are, and so does one without a watermark. */
const left = (score, watermark) => (halfLifeMs === null || watermark === undefined ? score : 2 ** Math.min(score - watermark / halfLifeMs, 1000));

const digits = (score) => (typeof score === "number" ? score.toFixed(6) : "");

/** Return a cell with a score; one that is what is left says so. */
function cell({ score }, watermark) {
  const shown = typeof score === "number" ? left(score, watermark) : score;
  return shown === score ? digits(score) : term(digits(shown), `what is left of the score at watermark ${watermark}; the time score is ${digits(score)}`);
}

// As a number, an id of 64 bits would be rounded.
const MESSAGE = ["Message", ({ message_id }) => message_id, "long"];

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const named = (fields) => Object.entries(fields).map(([name, value]) => (name === "text" && typeof value === "string" ? value : `${name}: ${shown(value)}`)).join("; ");

/** Return what a result says of its message: the fields that it carries, otherwise the text, if it is known; and what else its record has. */
const said = ({ text, fields, more }) => [fields ? named(fields) : text, named(more ?? {})].filter(Boolean).join("; ");
const TEXT = ["Text", said, "long"];

const RANK = ["Rank", ({ rank }) => (rank ? String(rank) : ""), "number"];

/** Return the columns of tables of results: those of a boolean subscription have neither rank nor score. Scores of a top-k subscription are as of a watermark. */
export const columns = ({ isTopk, isScored, watermark }) => [
  ...(isTopk ? [RANK] : []),
  ...(isTopk || isScored ? [["Score", (result) => cell(result, isTopk ? watermark : undefined), "number"]] : []),
  MESSAGE,
  TEXT,
];

/** Columns of a table of results of objects. */
export const MOVES = [["Object", ({ object }) => object, "long"], TEXT];

/** Return a result as lines of text; with a watermark the score of one with a rank is what is left of it there. */
export const lines = (result, watermark) => [
  result.rank ? `${result.rank}. ${said(result)}` : said(result),
  result.message_id,
  typeof result.score === "number" && `score ${digits(left(result.score, result.rank ? watermark : undefined))}`,
];

/** Return the words of a subscription. */
export const words = (fields) => fields?.text ?? fields?.expression ?? fields?.keywords?.join(" ") ?? (fields ? "any" : "");

/** Return a shape in words. */
function shape({ kind, bbox, lat, lon, radius_m, rings }) {
  if (kind === "bbox") return `in ${bbox.join(", ")}`;
  return kind === "circle" ? `within ${count(radius_m)} m of ${lat}, ${lon}` : `in a polygon with ${count(rings.reduce((sum, ring) => sum + ring.length, 0))} corners`;
}

/** Return where a subscription looks. */
export function where(fields) {
  if (!fields) return "";
  const scale = fields.distance === "metres" ? `, scale ${count(fields.scale_m)} m` : "";
  const wanted = fields.type === "topk" ? `k ${fields.k}` : `score ${fields.min_score} or more`;
  if (["topk", "threshold"].includes(fields.type)) return `near ${fields.lat}, ${fields.lon}, ${wanted}, alpha ${fields.alpha}${scale}${fields.where ? `, where ${fields.where}` : ""}`;
  const shapes = shapesOf(fields);
  const more = shapes.length > 3 ? `, and ${count(shapes.length - 3)} more` : "";
  return shapes.length ? shapes.slice(0, 3).map(shape).join(", or ") + more : "everywhere";
}
