// Writes clauses of the log query language. The server parses it; here only whole
// clauses are put together.

/** A value as it stands in a query, in quotes where it must. */
export function quoteValue(v: string): string {
  return /^[A-Za-z0-9_][A-Za-z0-9_.-]*$/.test(v) && !/^(AND|OR|NOT)$/.test(v) ? v : `"${v.replace(/["\\]/g, "\\$&")}"`;
}

/** Whether a query can name the field: a label with other characters in its name can't be. */
export const canName = (field: string): boolean => /^[A-Za-z0-9_.@/-]+$/.test(field);

export const clauseOf = (field: string, value: string): string => `${field}:${quoteValue(value)}`;

/** Whether the query has an OR outside of brackets and quotes. */
function hasLooseOr(query: string): boolean {
  let depth = 0;
  for (const m of query.matchAll(/\\.|"(?:\\.|[^"\\])*"?|[()]|(?:^|(?<=[\s)]))OR(?=[\s(])|\|\|/g)) {
    if (m[0] === "(") depth++;
    else if (m[0] === ")") depth--;
    else if ((m[0] === "OR" || m[0] === "||") && depth === 0) return true;
  }
  return false;
}

/** The query narrowed to records that have the value, or with not to those that have it not. */
export function addClause(query: string, field: string, value: string, not = false): string {
  const clause = clauseOf(field, value);
  const wanted = not ? `NOT ${clause}` : clause;
  const q = query.trim();
  if (!q) return wanted;
  if (hasLooseOr(q)) return `(${q}) AND ${wanted}`;
  const parts = q.split(" AND ");
  if (parts.includes(wanted)) return q;
  const opposite = parts.indexOf(not ? clause : `NOT ${clause}`);
  if (opposite >= 0) return parts.with(opposite, wanted).join(" AND ");
  return `${q} AND ${wanted}`;
}
