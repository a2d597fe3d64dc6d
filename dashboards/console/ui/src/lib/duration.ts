// Durations as people and as Go write them.

const UNIT: Record<string, number> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400, w: 7 * 86_400 };

/** Seconds of "90m", "1h30m", "2h0m0s" or "1d"; undefined for anything else. */
export function parseDuration(text: string): number | undefined {
  const s = text.trim();
  if (!/^(\d+(\.\d+)?(ms|[smhdw]))+$/.test(s)) return undefined;
  let sum = 0;
  for (const m of s.matchAll(/(\d+(?:\.\d+)?)(ms|[smhdw])/g)) sum += Number(m[1]) * UNIT[m[2]!]!;
  return sum;
}

/** Such as "2 h", "1 h 30 min", "7 days": nothing is rounded away but seconds. */
export function wordsOfDuration(seconds: number): string {
  const parts: string[] = [];
  let left = Math.round(seconds);
  const take = (unit: number, word: (n: number) => string) => {
    const n = Math.floor(left / unit);
    left -= n * unit;
    if (n > 0) parts.push(word(n));
  };
  take(86_400, (n) => (n === 1 ? "1 day" : `${n} days`));
  take(3600, (n) => `${n} h`);
  take(60, (n) => `${n} min`);
  if (parts.length === 0 || (left > 0 && seconds < 3600)) take(1, (n) => `${n} s`);
  return parts.join(" ") || "0 s";
}

/** A duration as the API's Go parser reads it: it knows no days. */
export function goDuration(seconds: number): string {
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60), Math.round(seconds % 60)];
  return `${h ? `${h}h` : ""}${m ? `${m}m` : ""}${s || (!h && !m) ? `${s}s` : ""}`;
}
