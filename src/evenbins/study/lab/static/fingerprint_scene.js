// The picture of a block: a bar for each line, its runs in two shades; below it levels 2 and 3 and the rest.
//
//   const scene = fingerprintScene({ onPick: (line) => … });      scene.load(answer); scene.choose(12);
//   zoomedLine(answer, 12)      one line in large: quotients, slots, and where its other runs are

import { h, replace, s } from "./dom.js";

const SLOT = 5;  // units of the picture
const HIGH = 9;
const GAP = 10;
const STEP = 14;
const MOST_OF_REST = 60;

// The runs of a line, every second one in one path.
function bars(runs, x, y, shade) {
  let d = "";
  let at = 0;
  runs.forEach(([, length], i) => {
    if (i % 2 === shade) d += `M${x + at * SLOT} ${y}h${length * SLOT - 0.6}v${HIGH}h${-(length * SLOT - 0.6)}z`;
    at += length;
  });
  return d;
}

export function fingerprintScene({ onPick }) {
  const element = h("div", { class: "fingerprints" });
  let groups = [];

  function lineAt(runs, away, slots, x, y, name) {
    return s("g", { class: away ? "line over" : "line" }, s("title", {}, name),
      s("rect", { class: "bed", x: x - 1.5, y: y - 1.5, width: slots * SLOT + 3, height: HIGH + 3, rx: 2 }),
      s("path", { class: "run even", d: bars(runs, x, y, 0) || "M0 0" }), s("path", { class: "run odd", d: bars(runs, x, y, 1) || "M0 0" }));
  }

  function load(answer) {
    const [slots, slots2, slots3] = answer.slots;
    const { group } = answer;
    const width = group * (slots * SLOT + GAP);
    const used = (runs) => runs.reduce((sum, [, length]) => sum + length, 0);
    const parts = [];
    let y = 18;
    const title = (text) => { parts.push(s("text", { x: 2, y: y - 6 }, text)); };
    title("Level 1: 16 rows of 8 lines");
    groups = answer.lines.map(({ here, away }, i) => {
      const row = Math.floor(i / group);
      const made = lineAt(here, away.length, slots, 2 + (i % group) * (slots * SLOT + GAP), y + row * STEP,
        `line ${i + 1}: ${used(here)} of ${slots} slots${away.length ? `, ${away.length} runs elsewhere` : ""}`);
      made.addEventListener("click", () => onPick(i + 1));
      return made;
    });
    parts.push(...groups);
    y += 16 * STEP + 22;
    title("Level 2: a line for each row of level 1, the runs of a row spread over all of them");
    answer.second.forEach(({ here, away }, i) => {
      parts.push(lineAt(here, away, slots2, 2 + (i % group) * (slots * SLOT + GAP), y + Math.floor(i / group) * STEP, `line ${i + 1} of level 2: ${used(here)} of ${slots2} slots`));
    });
    y += (answer.second.length / group) * STEP + 22;
    title("Level 3: eight fingerprints");
    for (let i = 0; i < slots3; i += 1) parts.push(s("rect", { class: i < answer.third ? "entry" : "bed", x: 2 + 16 * i, y, width: 13, height: HIGH, rx: 2 }));
    y += STEP + 22;
    title(answer.rest ? `The rest: ${answer.rest}` : "The rest: empty");
    for (let i = 0; i < Math.min(answer.rest, MOST_OF_REST); i += 1) parts.push(s("rect", { class: "entry", x: 2 + 8 * i, y, width: 6, height: HIGH, rx: 1 }));
    replace(element, s("svg", { viewBox: `0 0 ${width} ${y + STEP}`, role: "img", "aria-label": `A block with ${answer.keys} keys: ${answer.lines.filter((each) => each.away.length).length} of ${answer.lines.length} lines have runs elsewhere` }, parts));
  }

  return {
    element, load,
    choose(line) { groups.forEach((each, i) => each.classList.toggle("chosen", i === line - 1)); },
  };
}

export function zoomedLine(answer, line) {
  const { here, away } = answer.lines[line - 1];
  const [slots] = answer.slots;
  const where = new Map([...here.map(([quotient]) => [quotient, "here"]), ...away.map(([quotient]) => [quotient, "away"])]);
  const cells = here.flatMap(([quotient, length], i) => Array.from({ length }, (_, j) =>
    h("span", { class: `cell used ${i % 2 ? "odd" : "even"}${j === length - 1 ? " last" : ""}` }, quotient)));
  const free = slots - cells.length;
  for (let i = 0; i < free; i += 1) cells.push(h("span", { class: "cell" }));
  const sentence = away.length === 0
    ? `All ${here.length} runs are here, ${free} ${free === 1 ? "slot is" : "slots are"} free: one read answers everything.`
    : `${here.length} runs are here; ${away.map(([quotient, length, below, level]) => `that of quotient ${quotient} (${length} ${length === 1 ? "key" : "keys"}) is in ${level === 2 ? `line ${below + 1} of level 2` : "level 3 or the rest"}`).join(", ")}.`;
  return h("div", { class: "zoomed" },
    h("p", { class: "hint" }, `Line ${line}. Quotients, 64 bits: blue ones have their run in this line, orange ones elsewhere.`),
    h("div", { class: "quotients", "aria-hidden": "true" }, Array.from({ length: 64 }, (_, q) => h("span", { class: where.get(q) ?? null, title: `quotient ${q}` }))),
    h("p", { class: "hint" }, `Slots, ${slots}: each has a remainder (24 bits, not shown) and a bit that ends a run. The number is the run's quotient, which is not stored.`),
    h("div", { class: "slots", "data-value": "slots" }, cells),
    h("p", { "data-value": "line" }, sentence));
}
