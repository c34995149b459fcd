// How a result is shown, in a row of a table.

const score = ({ score }) => (typeof score === "number" ? score.toFixed(6) : "");
const message = ({ message }) => (typeof message === "string" ? message : JSON.stringify(message));

/** Columns of tables of results. */
export const COLUMNS = [
  ["Rank", ({ rank }) => (rank ? String(rank) : ""), "number"],
  ["Score", score, "number"],
  ["Message", message],
  ["Text", ({ text }) => text ?? ""],
];

/** Return a result as lines of text. */
export const lines = (result) => [
  result.rank ? `${result.rank}. ${result.text}` : result.text,
  message(result),
  score(result) && `score ${score(result)}`,
];
