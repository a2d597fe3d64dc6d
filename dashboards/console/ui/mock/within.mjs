// What the console makes of within= on a range query: looks between the steps at the same series.

const LOOKS = 48;

export function within(q, ask) {
  const of = q.get("within");
  if (!of) return ask(q);
  if (q.get("query").includes("[1d]")) {
    const detail = "what is between the steps can't be told: it costs 124,000,000 points for each series, of at most 50,000,000";
    return { status: 400, json: { type: "about:blank", title: "Bad Request", status: 400, detail, errors: [{ field: "within", detail }] } };
  }
  const [start, end, step] = ["start", "end", "step"].map((k) => Number(q.get(k)));
  const inner = new URLSearchParams(q);
  inner.delete("within");
  inner.set("start", start - step + step / LOOKS);
  inner.set("end", end);
  inner.set("step", step / LOOKS);
  const a = ask(inner);
  if (a.json?.status !== "success") return a;
  const result = a.json.data.result.map(({ metric: { __name__: _, ...metric }, values }) => {
    const at = new Map();
    for (const [t, v] of values) {
      const i = Math.ceil((t - start) / step - 1e-6);
      at.set(i, [...(at.get(i) ?? []), Number(v)]);
    }
    const told = { least: (v) => Math.min(...v), largest: (v) => Math.max(...v), coverage: (v) => Math.min(1, v.length / LOOKS) }[of];
    return { metric, values: [...at].map(([i, v]) => [start + i * step, String(told(v))]) };
  });
  return { json: { status: "success", data: { resultType: "matrix", result } } };
}
