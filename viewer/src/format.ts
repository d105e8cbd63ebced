// Numbers and names as people read them.

const UNITS: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/** A number of ns with four digits: "12.34 ms". */
export function duration(ns: number | null | undefined): string {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return "–";
  const size = Math.abs(ns);
  if (size >= 120e9) return `${ns < 0 ? "−" : ""}${Math.floor(size / 60e9)} min ${Math.round((size % 60e9) / 1e9)} s`;
  for (const [scale, unit] of UNITS) {
    if (size >= scale) return `${digits(ns / scale, scale === 1 ? 0 : 4)} ${unit}`;
  }
  return size === 0 ? "0" : `${digits(ns, 2)} ns`;
}

function digits(value: number, count: number): string {
  if (count === 0) return String(Math.round(value));
  value = Number(value.toPrecision(count)); // so that 9.9999 is 10.00, not 10.000
  const before = Math.floor(Math.log10(Math.max(Math.abs(value), 1))) + 1;
  return value.toFixed(Math.max(0, count - before));
}

/** Every ns of it: "1.234 567 890 s". */
export function exactly(ns: number): string {
  const sign = ns < 0 ? "−" : "";
  const whole = Math.round(Math.abs(ns));
  const seconds = Math.floor(whole / 1e9);
  const rest = String(whole % 1e9).padStart(9, "0");
  return `${sign}${seconds}.${rest.slice(0, 3)}\u2009${rest.slice(3, 6)}\u2009${rest.slice(6)} s`;
}

/** A place on the time axis whose marks are `step` ns apart. */
export function moment(ns: number, step: number): string {
  const span = Math.max(Math.abs(ns), step);
  const [scale, unit] = UNITS.find(([size]) => span >= size) ?? UNITS[3];
  const decimals = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / scale) - 1e-9)));
  return ns === 0 ? "0" : `${(ns / scale).toFixed(decimals)} ${unit}`;
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (value: number | null): string => (value === null ? "–" : grouped.format(value).replaceAll(",", "\u2009"));

export function percent(share: number | null): string {
  if (share === null || !Number.isFinite(share)) return "–";
  const value = share * 100;
  return `${value >= 99.95 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} %`;
}

// Controls, and what could turn round or hide the text around it.
const HARMFUL = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** A name for people: what it could play tricks with is written as an escape. */
export function visible(name: string): string {
  return name.replace(HARMFUL, (character) => {
    const code = character.codePointAt(0)!;
    if (code === 10) return "\\n";
    if (code === 9) return "\\t";
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
  });
}
