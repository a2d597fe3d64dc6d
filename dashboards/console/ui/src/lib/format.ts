const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** Unknown values are a dash, never a zero. */
export const DASH = "–";

export const formatCount = (n: number): string => whole.format(n);

/**
 * A score for people. It is rounded down, so that 39.6 never reads as 40, which
 * would be another colour.
 */
export function formatScore(s: number | null | undefined): string {
  return s === null || s === undefined || !Number.isFinite(s) ? DASH : whole.format(Math.floor(s + 1e-9));
}

export const formatPercent = (p: number): string => `${one.format(p)}%`;
export const formatPoints = (p: number): string => one.format(p);

export function plural(n: number, word: string, many = `${word}s`): string {
  return `${formatCount(n)} ${n === 1 ? word : many}`;
}

export const doNotApply = (n: number): string => (n === 1 ? "1 signal does not apply to this site" : `${formatCount(n)} signals do not apply to this site`);

/** A figure of a score's arithmetic, as the health engine writes it: two decimals, four digits. */
export const formatFigure = (v: number): string => String(Number((Math.round(v * 100) / 100).toPrecision(4)));

/** A signal's value with its unit, as the health engine writes it into reasons; parts of a day are told in hours and minutes. */
export function formatValue(v: number | null | undefined, unit = ""): string {
  if (v === null || v === undefined || Number.isNaN(v)) return DASH;
  switch (unit) {
    case "":
    case "count":
      return number(v);
    case "percent":
      return `${number(v)}%`;
    case "ratio":
      return `${number(100 * v)}%`;
    case "seconds":
      return seconds(v);
    case "days":
      if (v > 0 && v < 0.9995) return seconds(v * 86_400);
      return number(v) === "1" ? "1 day" : `${number(v)} days`;
    case "bytes":
      return bytes(v);
    default:
      return `${number(v)} ${unit}`;
  }
}

function number(v: number): string {
  if (!Number.isFinite(v)) return v > 0 ? "∞" : "−∞";
  return Math.abs(v) >= 100 ? whole.format(v) : three.format(v);
}

function seconds(v: number): string {
  const a = Math.abs(v);
  if (a === 0) return "0 s";
  if (a < 0.9995) return `${number(v * 1000)} ms`;
  if (a < 120) return `${number(v)} s`;
  if (a < 7200) return `${number(v / 60)} min`;
  if (a < 48 * 3600) return `${number(v / 3600)} h`;
  return `${number(v / 86400)} days`;
}

function bytes(v: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (Math.abs(v) >= 1024 && i < units.length - 1) {
    v /= 1024;
    i++;
  }
  return `${number(v)} ${units[i]}`;
}
