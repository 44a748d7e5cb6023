// The page Dedup: how large is a deduplication? Keys, rate and memory on the left; on the right what each way to
// remember keys takes, how many new rows it drops by mistake, how long it takes here, and the texts that run it.

import { only } from "./api.js";
import { lineChart } from "./chart.js";
import { calm, card, copyBox, dataTable, facts, progress, segmented, slider } from "./controls.js";
import { h, replace } from "./dom.js";
import { bytes, count, expected, nanoseconds, number, plain, superscript } from "./format.js";

const GIB = 2 ** 30;
const NAMES = { filter: "filter", growing: "growing", exact: "exact", disk: "on disk" };
const MEMORY = ["filter", "growing", "exact"];
const ABOUT = {
  filter: "About six bytes per key at a rate of one in a billion. The number of different keys must be known, or estimated, as evenbins dedup does for files.",
  growing: "For a pipe, where nobody knows how many keys will come: filters of growing size, with more memory per key.",
  exact: "Two different keys are taken for one only if 128 bits of their hashes are equal.",
  disk: "With more keys than memory: digests go to disk in parts that fit, and are compared exactly. Rows are read twice.",
};

export default {
  title: "Dedup",
  mount(root, { state, api, notify }) {
    const problems = [];
    const problem = (text) => problems.push(text);
    const need = {
      keys: state.number("keys", 1e8, { min: 1, max: 1e12, whole: true, problem }),
      rows: state.number("rows", null, { min: 1, max: 1e14, whole: true, problem }),
      fpr: state.number("fpr", 1e-9, { min: 1e-15, max: 0.5, problem }),
      memory: state.number("memory", 4 * GIB, { min: 2 ** 26, max: 2 ** 50, whole: true, problem }),
      design: state.choice("design", "best", ["best", ...Object.keys(NAMES)], { problem }),
    };
    if (problems.length) notify(problems.join(" "));
    let planned = null;
    let drawn = null;
    let drawnFor = null;

    const remember = () => state.set({
      keys: plain(need.keys), rows: need.rows && plain(need.rows), fpr: plain(need.fpr), memory: need.memory, design: need.design === "best" ? null : need.design,
    });
    const allRows = () => need.rows ?? 2 * need.keys;

    // --- controls ---
    const keys = slider({
      label: "Different keys", scale: "log", min: 1e4, max: 1e12, least: 1, value: need.keys, digits: 2, whole: true, format: count,
      onChange: (value) => { need.keys = value; if (need.rows !== null && need.rows < value) need.rows = null; rows.set(allRows()); changed(); },
    });
    const rows = slider({
      label: "Rows", scale: "log", min: 1e4, max: 1e13, least: 1, most: 1e14, value: allRows(), digits: 2, whole: true, format: count, help: "Twice the keys unless you say otherwise.",
      onChange: (value) => { need.rows = value; changed(); },
    });
    const fpr = slider({
      label: "Error rate", scale: "log", min: 1e-12, max: 0.1, least: 1e-15, most: 0.5, value: need.fpr, digits: 1, help: "New rows that are dropped by mistake, at most.",
      onChange: (value) => { need.fpr = value; changed(); },
    });
    const memory = slider({
      label: "Memory", unit: "GiB", scale: "log", min: 1 / 16, max: 2 ** 20, value: need.memory / GIB, digits: 2, help: "Of which 48 MiB are for rows, as in evenbins dedup --memory.",
      onChange: (value) => { need.memory = Math.round(value * GIB); changed(); },
    });
    const focus = segmented({
      label: "Look at", choices: [["best", "best"], ...Object.entries(NAMES)], value: need.design,
      onChange: (value) => { need.design = value; changed(); },
    });
    focus.element.classList.add("many");
    const about = h("p", { class: "hint" });

    // --- results ---
    const chart = lineChart({
      label: "Memory over the number of different keys", height: 340, x: { label: "different keys", log: true, min: 1e4, max: 1e12, read: count, format: (value) => `10${superscript(Math.round(Math.log10(value)))}` },
      y: { label: "memory", log: true, min: 1e4, max: 1e14, format: bytesTick, read: bytes },
    });
    const box = h("div", { class: "stack tight" }, h("p", { class: "hint" }, "Planning …"));
    const timeBox = h("div", { class: "stack tight" });
    const timeBar = progress({ label: "Timing rows", onCancel: () => { timing.abort(); timeBar.end(); } });
    const python = copyBox({ label: "Python" });
    const command = copyBox({ label: "command" });
    root.append(
      h("h1", {}, "Dedup"),
      h("p", { class: "lede" }, "Keep the first of equal rows. How much memory does it take to remember which keys were seen, how many new rows are dropped by mistake, and how long does it take?"),
      h("div", { class: "split" },
        h("form", { class: "controls", "aria-label": "The request", onsubmit: (event) => event.preventDefault() },
          keys.element, rows.element, fpr.element, memory.element, focus.element, about),
        h("div", { class: "stack" },
          card("Memory over keys", chart.element),
          card("Designs", box),
          card("Time on this machine", timeBar.element, timeBox),
          card("Take it with you", python.element, command.element))));

    const draw = () => {
      const chosen = planned?.designs.find((each) => each.name === planned.chosen);
      chart.update({
        series: MEMORY.map((name) => ({ id: name, name: NAMES[name], points: drawn?.[name] ?? [], focus: chosen?.name === name, note: ABOUT[name] })),
        marks: chosen && chosen.name !== "disk" && !chosen.problem ? [{ x: need.keys, y: chosen.nbytes, label: `${NAMES[chosen.name]}, ${bytes(chosen.nbytes)}`, below: true }] : [],
        guides: [{ y: need.memory }],
      });
    };

    const show = () => {
      const found = planned;
      const chosen = found.designs.find((each) => each.name === found.chosen);
      about.textContent = ABOUT[chosen.name];
      replace(box,
        chosen.problem
          ? h("p", { class: "problem" }, chosen.problem)
          : facts([
            ["design", NAMES[chosen.name], chosen.title],
            ["memory", bytes(chosen.nbytes), chosen.name === "disk" ? "as much as there is" : `${number(chosen.bytes_per_key)} bytes per key`],
            ["new rows dropped by mistake", `${expected(chosen.wrong)} expected`, chosen.name === "filter" || chosen.name === "growing" ? `of ${count(need.keys)}; at most ${expected(found.at_most)} on average` : `of ${count(need.keys)}`],
            chosen.name === "disk" ? ["disk", bytes(chosen.disk), "for a while"] : ["room for", `${count(chosen.most_keys)} keys`, `within ${bytes(need.memory)}`],
          ]),
        !chosen.problem && !chosen.fits && h("p", { class: "warn" }, `This does not fit into ${bytes(need.memory)}, of which ${bytes(found.own_bytes)} are for rows.`),
        dataTable({
          caption: "Choose one to look at it.",
          rows: found.designs, onPick: (row) => { need.design = row.name; focus.set(row.name); changed(); },
          mark: (row) => (row.name === found.chosen ? "chosen" : row.fits ? null : "dim"),
          columns: [
            { key: "name", label: "design", align: "left", format: (v) => NAMES[v] },
            { key: "nbytes", label: "memory", format: (v) => (v === undefined ? "–" : bytes(v)) },
            { key: "bytes_per_key", label: "bytes/key", format: (v) => (v ? number(v) : "–") },
            { key: "disk", label: "disk", format: (v) => (v ? bytes(v) : "–") },
            { label: "dropped by mistake", cell: (row) => (row.problem ? "–" : `${expected(row.wrong)} of ${count(need.keys)}`) },
            { label: "fits", cell: (row) => (row.problem ? "cannot be" : row.fits ? "yes" : "no") },
          ],
        }),
        found.designs.filter((each) => each.problem && each.name !== chosen.name).map((each) => h("p", { class: "hint" }, `${NAMES[each.name]}: ${each.problem}`)));
      python.element.hidden = !found.python;
      python.set(found.python.trimEnd());
      command.set(found.command);
    };

    // --- asking ---
    const planning = only();
    const timing = only();
    const plan = () => planning(async (signal) => {
      const found = await api.get("dedup/sizes", need.design === "best" ? { ...need, design: null } : need, { signal });
      if (!problems.length) notify(null);
      problems.length = 0;
      planned = found;
      show();
      draw();
      measureSoon();
      if (drawnFor === need.fpr) return;
      const wanted = need.fpr;
      const answer = await api.get("dedup/curves", { fpr: wanted }, { signal });
      drawn = answer.curves;
      drawnFor = wanted;
      draw();
    }).catch((error) => {
      planned = null;
      draw();
      replace(box, h("p", { class: "problem" }, error.message));
      replace(timeBox);
      notify(error);
    });

    const known = new Map();  // times by what they depend on
    const measure = () => timing(async (signal) => {
      const design = planned?.chosen;
      if (!design) return;
      if (!MEMORY.includes(design) || planned.designs.find((each) => each.name === design).problem) {
        replace(timeBox, h("p", { class: "hint" }, design === "disk" ? "On disk it takes two passes over the rows, and the time of the disk: run it to know." : "There is nothing to time."));
        return;
      }
      const key = JSON.stringify([design, need.keys, need.fpr]);
      if (!known.has(key)) {
        timeBar.start("timing rows …");
        timeBox.classList.add("stale");
        try {
          known.set(key, await api.job("dedup/time", { keys: need.keys, fpr: need.fpr, design }, { signal, onProgress: timeBar.show }));
        } finally {
          if (!signal.aborted) { timeBar.end(); timeBox.classList.remove("stale"); }
        }
      }
      const found = known.get(key);
      const seconds = 1e-9 * (need.keys * found.new_ns + (allRows() - need.keys) * found.repeated_ns);
      replace(timeBox,
        facts([
          ["estimate", duration(seconds), `for ${count(allRows())} rows`],
          ["a new row", nanoseconds(found.new_ns)],
          ["a repeated row", nanoseconds(found.repeated_ns)],
        ]),
        h("p", { class: "hint" }, `Measured on this machine just now: ${count(found.rows)} new rows, and the same again, in a real Deduplicator of ${found.memory} (${NAMES[design]}, ${count(found.keys)} keys), integers, one thread. Reading, parsing and writing the rows comes on top, and mostly takes longer.`,
          found.keys < need.keys ? ` One for ${count(need.keys)} keys is larger, and its memory slower to reach: expect more.` : ""));
    }).catch(notify);
    const measureSoon = calm(measure, 300);
    const soon = calm(plan, 120);
    const changed = () => { remember(); draw(); soon(); };
    plan();
    return () => {
      soon.cancel(); measureSoon.cancel();
      planning.abort(); timing.abort();
      chart.end();
    };
  },
};

// Ticks are powers of ten: kB, MB, GB.
function bytesTick(value) {
  const units = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
  const [size, unit] = units.find(([each]) => value >= each) ?? [1, "B"];
  return `${value / size} ${unit}`;
}

function duration(seconds) {
  if (seconds < 120) return `${number(seconds, 2)} s`;
  if (seconds < 7200) return `${number(seconds / 60, 2)} min`;
  return seconds < 172800 ? `${number(seconds / 3600, 2)} h` : `${number(seconds / 86400, 2)} days`;
}
