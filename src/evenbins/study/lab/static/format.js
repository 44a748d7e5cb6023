// Numbers for people.

const SUPER = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

export function superscript(whole) {
  return [...String(whole)].map((digit) => SUPER[digit]).join("");
}

// A number in a few significant digits; powers of ten beyond five places: 1.2×10⁻⁶.
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7 && (digits >= 4 || size < 1e4)) return value.toLocaleString("en");
  if (size >= 1e-3 && size < 1e5) {
    const text = Number(value.toPrecision(digits)).toString();
    return size >= 10 ** digits ? Math.round(value).toLocaleString("en") : text;
  }
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
  const power = `10${superscript(Number(exponent))}`;
  return short === "1" ? power : short === "-1" ? `-${power}` : `${short}×${power}`;
}

// A whole number with all its digits: 3,000,000.
export function whole(value) {
  return Math.round(value).toLocaleString("en");
}

// Whole numbers: 12,345 and beyond a million 1.2 million.
export function count(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, name] of [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]]) {
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))} ${name}`;
  }
  return Math.round(value).toLocaleString("en");
}

// A time, of which more than three digits would be noise.
export function nanoseconds(value, unit = " ns") {
  return value === null || value === undefined ? "" : `${value < 10 ? value.toFixed(1) : whole(value)}${unit}`;
}

// An expected number of events: 3.0, 0.021, 1,234.
export function expected(value) {
  return value >= 1000 ? whole(value) : value >= 1 ? value.toFixed(1) : number(value, 2);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

export function percent(value, digits = 3) {
  return value === null || value === undefined ? "–" : `${number(100 * value, digits)} %`;
}

// What a person typed as a number, or NaN: 1e7, 10_000_000, 10,000,000, 10 million; 0.1%, 1/1000, 1 in a million.
export function parse(text) {
  const percentage = /^(.*)%$/.exec(text.trim());
  if (percentage) return parse(percentage[1]) / 100;
  const ratio = /^(.+?)(?:\s*\/\s*|\s+in\s+)(.+)$/i.exec(text.trim());
  if (ratio) return parse(ratio[1]) / parse(ratio[2].replace(/^(a|one)\s+/i, "1 "));
  const plain = text.trim().replace(/[_\s,](?=\d{3}(\D|$))/g, "").replace(/_/g, "");
  const match = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(k|thousand|m|million|b|billion)?$/i.exec(plain);
  if (!match) return NaN;
  const scale = { k: 1e3, thousand: 1e3, m: 1e6, million: 1e6, b: 1e9, billion: 1e9 };
  return Number(match[1]) * (match[2] ? scale[match[2].toLowerCase()] : 1);
}

// As it stands in an address or a number box: short, exact.
export function plain(value) {
  const text = String(Number(value));
  const scientific = Number(value).toExponential().replace("e+", "e");
  return text.length > 6 && scientific.length < text.length ? scientific : text;
}
