// How a result is shown, in a row of a table, and a subscription in words.

import { count } from "/static/dom.js";
import { shapesOf } from "/static/dskype/shapes.js";

const score = ({ score }) => (typeof score === "number" ? score.toFixed(6) : "");

// As a number, an id of 64 bits would be rounded.
const MESSAGE = ["Message", ({ message_id }) => message_id, "long"];

/** Return what a result says of its message: the fields that it carries, otherwise the text, if it is known. */
const said = ({ text, fields }) =>
  fields
    ? Object.entries(fields).map(([name, value]) => (name === "text" && typeof value === "string" ? value : `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)).join("; ")
    : text ?? "";
const TEXT = ["Text", said, "long"];

const RANK = ["Rank", ({ rank }) => (rank ? String(rank) : ""), "number"];
const SCORE = ["Score", score, "number"];

/** Return the columns of tables of results: those of a boolean subscription have neither rank nor score. */
export const columns = ({ isTopk, isScored }) => [...(isTopk ? [RANK] : []), ...(isTopk || isScored ? [SCORE] : []), MESSAGE, TEXT];

/** Columns of a table of results of objects. */
export const MOVES = [["Object", ({ object }) => object, "long"], TEXT];

/** Return a result as lines of text. */
export const lines = (result) => [
  result.rank ? `${result.rank}. ${said(result)}` : said(result),
  result.message_id,
  score(result) && `score ${score(result)}`,
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
