// The page Filters: a request on the left; on the right what it costs under every policy, the designs that meet
// it, real filters of the chosen one beside their prediction, and the texts that build it.
//
// A change asks in the order of what it takes: quick curves (milliseconds), designs (a second); then, together, real
// filters in the background and the slow curves, one policy after the other; at last the times of look-ups.

import { only } from "./api.js";
import { histogram, lineChart } from "./chart.js";
import { calm, card, copyBox, dataTable, facts, progress, segmented, slider } from "./controls.js";
import { h, replace } from "./dom.js";
import { bytes, count, expected, nanoseconds, number, percent, plain, whole } from "./format.js";

const POLICIES = ["standard", "blocked", "single", "sequential", "multilevel", "fill", "two-choice"];
const SLOW = ["fill", "two-choice", "multilevel", "sequential", "single"];
const READS = ["", "1", "1.05", "1.1", "1.2", "1.5", "2", "3", "4"];
const ABOUT = {
  standard: "The fewest bits; as many reads as hashes.",
  blocked: "All bits of a key in one cache line: one read.",
  single: "One block a key; keys beyond its threshold go to a list.",
  sequential: "A full block sends the key to its next block of the same table.",
  multilevel: "A full block sends the key to a smaller table.",
  fill: "As multilevel, but a block is full by its set bits; no list.",
  "two-choice": "Two blocks, the better one takes the key; both are read.",
};
const COLOURS = [7, 1, 2, 3, 4, 0, 6];
const DASHES = [0, 0, 2, 1, 3, 0, 1];
const NAMES = {
  fpr: "false-positive rate, from the bits", fill: "fraction of set bits", reads: "reads, present key", miss_reads: "reads, absent key",
  list_reads: "absent keys that ask the list", overflow: "keys on the list", spilled: "keys that spilled",
};

const COUNTED = ["overflow", "spilled"];  // shares of the keys

export default {
  title: "Filters",
  mount(root, { state, api, notify }) {
    const problems = [];
    const problem = (text) => problems.push(text);
    const need = {
      keys: state.number("keys", 1e7, { min: 1, max: 1e12, whole: true, problem }),
      goal: state.get("bits") !== null ? "bits" : "fpr",
      fpr: state.number("fpr", 1e-6, { min: 1e-15, max: 0.9, problem }),
      bits: state.number("bits", 16, { min: 1, max: 256, problem }),
      reads: state.number("reads", null, { min: 1, max: 64, problem }),
      miss: state.number("miss_reads", null, { min: 1, max: 64, problem }),
      block: state.choice("block_bits", "512", ["256", "512"], { problem }),
      policy: state.choice("policy", "best", ["best", ...POLICIES], { problem }),
      real: state.number("real", null, { min: 1, max: 2e7, whole: true, problem }),
      view: state.choice("view", "rate", ["rate", "factor"], { problem }),
      seed: state.number("seed", 1, { min: 0, max: 2 ** 32 - 1, whole: true, problem }),
    };
    if (problems.length) notify(problems.join(" "));

    const bounds = () => ({ reads: need.reads, miss_reads: need.miss, block_bits: need.block });
    const goal = () => (need.goal === "fpr" ? { fpr: need.fpr } : { bits_per_key: need.bits });
    const realKeys = () => need.real ?? Math.min(need.keys, 1e6);
    const remember = () => state.set({
      keys: plain(need.keys), fpr: need.goal === "fpr" ? plain(need.fpr) : null, bits: need.goal === "bits" ? plain(need.bits) : null,
      reads: need.reads, miss_reads: need.miss, block_bits: need.block === "512" ? null : need.block,
      policy: need.policy === "best" ? null : need.policy, real: need.real && plain(need.real), view: need.view === "rate" ? null : need.view, seed: need.seed === 1 ? null : need.seed,
    });

    // --- controls ---------------------------------------------------------------------------------------
    const keys = slider({
      label: "Keys", scale: "log", min: 100, max: 1e12, least: 1, value: need.keys, digits: 2, whole: true, format: count,
      onChange: (value) => { need.keys = value; changed({ curves: true }); },
    });
    const fpr = slider({
      label: "False-positive rate", scale: "log", min: 1e-12, max: 0.5, least: 1e-15, most: 0.9, value: need.fpr, digits: 2,
      onChange: (value) => { need.fpr = value; changed(); },
    });
    const bits = slider({
      label: "Bits per key", min: 2, max: 64, least: 1, most: 256, step: 0.5, value: need.bits,
      onChange: (value) => { need.bits = value; changed(); },
    });
    const aim = segmented({
      label: "What is given", choices: [["fpr", "the rate"], ["bits", "the memory"]], value: need.goal,
      onChange: (value) => { need.goal = value; showGoal(); changed(); },
    });
    const showGoal = () => { fpr.element.hidden = need.goal !== "fpr"; bits.element.hidden = need.goal !== "bits"; };
    const bound = (label, name, help) => {
      const own = need[name] === null ? "" : String(need[name]);
      const choices = (READS.includes(own) ? READS : [...READS, own]).map((each) => [each, each === "" ? "any number" : `at most ${each}`]);
      return slider({
        label, scale: "choice", choices, value: own, help,
        onChange: (value) => { need[name] = value === "" ? null : Number(value); changed({ curves: true }); },
      });
    };
    const reads = bound("Reads, present key", "reads");
    const miss = bound("Reads, absent key", "miss", "Mean reads of memory; two independent ones overlap.");
    const block = segmented({
      label: "Block", choices: [["256", "256 bits"], ["512", "512 bits, a cache line"]], value: need.block,
      onChange: (value) => { need.block = value; changed({ curves: true }); },
    });
    const focus = segmented({
      label: "Look at", choices: [["best", "best"], ...POLICIES.map((each) => [each, each])], value: need.policy,
      onChange: (value) => { need.policy = value; changed(); },
    });
    focus.element.classList.add("many");
    const about = h("p", { class: "hint" });
    showGoal();

    // --- results ----------------------------------------------------------------------------------------
    const chart = lineChart({
      label: "False-positive rate over bits per key, by policy", x: { label: "bits per key", min: 4, read: (v) => number(v, 4) },
      y: { label: "false-positive rate", log: true, max: 1 }, height: 360,
    });
    const chartView = segmented({
      label: "Drawn", hideLabel: true, choices: [["rate", "rate"], ["factor", "× standard"]], value: need.view,
      onChange: (value) => { need.view = value; remember(); draw(); },
    });
    const curveBar = progress({ label: "Curves" });
    const designsBox = h("div", { class: "stack tight" }, h("p", { class: "hint" }, "Planning …"));
    const realBox = h("div", { class: "stack tight" });
    const realBar = progress({ label: "Building filters", onCancel: () => measuring.abort() });
    const real = slider({
      label: "Keys of a real filter", scale: "log", min: 1000, max: 2e7, least: 1, value: realKeys(), whole: true, digits: 2, format: count,
      onChange: (value) => { need.real = value; remember(); measureSoon(); },
    });
    const again = h("button", { type: "button", onclick: () => { need.seed = (need.seed + 3) % 2 ** 32; remember(); measureNow(); } }, "Build others");
    const python = copyBox({ label: "Python" });
    const command = copyBox({ label: "command" });
    root.append(
      h("h1", {}, "Filters"),
      h("p", { class: "lede" }, "Is this key in the set? Say how many keys, and the rate of wrong yeses you accept; see what every policy makes of it, and whether a real filter keeps the promise."),
      h("div", { class: "split" },
        h("form", { class: "controls", "aria-label": "The request", onsubmit: (event) => event.preventDefault() },
          keys.element, aim.element, fpr.element, bits.element, reads.element, miss.element, block.element, focus.element, about),
        h("div", { class: "stack" },
          h("section", { class: "card" }, h("div", { class: "row between" }, h("h2", {}, "False-positive rate over memory"), chartView.element), chart.element, curveBar.element),
          card("Designs that meet the request", designsBox),
          card("Real filters beside their prediction", h("div", { class: "row between real" }, real.element, again), realBar.element, realBox),
          card("Take it with you", python.element, command.element))));

    // --- curves -----------------------------------------------------------------------------------------
    const known = new Map();  // curves by what they depend on
    const drawingQuick = only();
    const drawingSlow = only();
    let chosen = null;
    let planned = null;  // what the server answered
    let drawn = {};
    const decade = () => 10 ** Math.round(Math.log10(need.keys));
    const curveKey = (policy) => JSON.stringify([policy, SLOW.includes(policy) ? decade() : need.keys, bounds()]);
    const scaled = (rate, index) => {
      const standard = drawn.standard?.[index]?.[1];
      return need.view === "rate" ? rate : rate && standard ? rate / standard : null;
    };
    const highest = () => 1.2 * Math.max(2, ...POLICIES.filter((policy) => !chart.hidden.has(policy)).flatMap((policy) => (drawn[policy] ?? []).map(([, y], i) => scaled(y, i) ?? 1)));
    const draw = () => chart.update({
      series: POLICIES.map((policy, index) => ({
        id: policy, name: policy, colour: COLOURS[index], dash: DASHES[index], note: ABOUT[policy],
        points: (drawn[policy] ?? []).map(([x, y], i) => [x, scaled(y, i)]).filter(([, y]) => y !== null && y > 0), focus: chosen?.policy === policy,
      })),
      ...(need.view === "rate" ? {
        y: { label: "false-positive rate", log: true, max: 1 },
        marks: chosen ? [{ x: chosen.bits_per_key, y: chosen.fpr, label: chosen.policy }] : [],
        guides: [need.goal === "fpr" ? { y: need.fpr } : { x: need.bits }],
      } : {
        y: { label: "false-positive rate, times the standard filter’s", log: true, max: highest(), read: (v) => `× ${number(v)}` },
        marks: [], guides: chosen ? [{ x: chosen.bits_per_key }] : [],
      }),
    });
    const drawQuick = () => drawingQuick(async (signal) => {
      const quick = await api.get("filters/curves", { keys: need.keys, ...bounds() }, { signal });
      for (const [policy, rates] of Object.entries(quick.curves)) drawn[policy] = quick.bits.map((x, i) => [x, rates[i]]);
      for (const policy of SLOW) drawn[policy] = known.get(curveKey(policy)) ?? [];
      draw();
    }).catch(notify);
    const drawSlow = () => drawingSlow(async (signal) => {
      const missing = SLOW.filter((policy) => !known.has(curveKey(policy)));
      try {
        for (const [index, policy] of missing.entries()) {
          const key = curveKey(policy);
          curveBar.start(`planning ${policy} …`);
          const found = await api.job("filters/curve", { keys: need.keys, policy, ...bounds() }, {
            signal, onProgress: (done, total) => curveBar.show(index + done / total, missing.length),
          });
          known.set(key, found.bits.map((x, i) => [x, found.fpr[i]]));
          drawn[policy] = known.get(key);
          draw();
        }
      } finally {
        if (!signal.aborted) curveBar.end();
      }
    }).catch(notify);

    // --- times of look-ups ------------------------------------------------------------------------------
    const times = new Map();  // by what they depend on
    const timing = only();
    const timesKey = () => JSON.stringify([Math.min(need.keys, 1e6), goal(), bounds()]);
    const measureTimes = () => timing(async (signal) => {
      const key = timesKey();
      if (times.has(key) || !chosen) return;
      times.set(key, await api.job("filters/times", { keys: need.keys, ...goal(), ...bounds() }, { signal }));
      if (!signal.aborted && chosen && key === timesKey()) showDesigns();
    }).catch(notify);

    // --- designs ----------------------------------------------------------------------------------------
    const planning = only();
    const plan = () => planning(async (signal) => {
      const found = await api.get("filters/designs", { keys: need.keys, ...goal(), ...bounds(), policy: need.policy }, { signal });
      if (problems.length === 0) notify(null);
      problems.length = 0;
      planned = found;
      chosen = found.designs.find((each) => each.policy === found.chosen);
      about.textContent = `${chosen.policy}: ${ABOUT[chosen.policy]}`;
      showDesigns();
      python.set(found.python.trimEnd());
      command.set(found.command);
      draw();
      measureSoon();
    }).catch((error) => {
      chosen = null;
      draw();
      measuring.abort();
      timing.abort();
      replace(designsBox, h("p", { class: "problem" }, error.message));
      replace(realBox);
      python.set(""); command.set("");
      notify(error);
    });
    const showDesigns = () => {
      const found = planned;
      const timed = times.get(timesKey());
      const [present, absent] = timed?.ns[chosen.policy] ?? [null, null];
      const also = (ns) => (ns === null ? "" : `, ${nanoseconds(ns)}`);
      replace(designsBox,
        facts([
          ["design", chosen.policy], ["memory", bytes(chosen.nbytes), `${number(chosen.bits_per_key, 4)} bits per key`], ["false-positive rate", number(chosen.fpr)],
          ["reads", number(chosen.reads, 4), `present key${also(present)}`], ["reads", number(chosen.miss_reads, 4), `absent key${also(absent)}`],
        ]),
        found.note && h("p", { class: "hint warn" }, found.note),
        dataTable({
          caption: "Best first. ★: on the Pareto front, no other design is as good in all and better in one. Choose one to look at it.",
          rows: found.designs, onPick: (row) => { need.policy = row.policy; focus.set(row.policy); changed(); },
          mark: (row) => (row.policy === found.chosen ? "chosen" : row.pareto ? null : "dim"),
          columns: [
            { key: "policy", label: "policy", align: "left" },
            { label: "", align: "left", cell: (row) => (row.pareto ? h("span", { title: "on the Pareto front", "aria-label": "on the Pareto front" }, "★") : "") },
            { key: "bits_per_key", label: "bits/key", format: (v) => number(v, 4) },
            { key: "nbytes", label: "memory", format: bytes },
            { key: "fpr", label: "FPR", format: (v) => number(v, 3) },
            { key: "reads", label: "reads", format: (v) => number(v, 4) },
            { label: "ns", title: "nanoseconds per look-up of a present key, measured on this machine", cell: (row) => nanoseconds(timed?.ns[row.policy]?.[0], "") },
            { key: "miss_reads", label: "miss reads", format: (v) => number(v, 4) },
            { label: "ns", title: "nanoseconds per look-up of an absent key, measured on this machine", cell: (row) => nanoseconds(timed?.ns[row.policy]?.[1], "") },
            { key: "overflow", label: "overflow", format: (v) => number(v, 2) },
            { label: "hashes × choices", cell: (row) => `${row.hashes} × ${row.choices}` },
            { key: "thresholds", label: "thresholds", format: (v) => v.join(" ") || "–" },
          ],
        }),
        h("p", { class: "hint", "data-value": "times" }, timed
          ? `ns: nanoseconds per look-up, measured on this machine: bulk look-ups of integers by one thread, in filters of ${count(timed.keys)} keys. Filters that are larger than the processor’s caches take longer.`
          : "ns: nanoseconds per look-up, to be measured on this machine …"),
        found.missing.length > 0 && h("p", { class: "hint" }, `Not within these bounds: ${found.missing.join(", ")}.`));
    };

    // --- real filters -----------------------------------------------------------------------------------
    const measuring = only();
    const stopMeasuring = measuring.abort;
    measuring.abort = () => { stopMeasuring(); realBar.end(); };
    let charts = [];
    const measureNow = () => measuring(async (signal) => {
      if (!chosen) return;
      if (need.real === null) real.set(realKeys());
      realBar.start(`building three filters of ${count(realKeys())} keys …`);
      realBox.classList.add("stale");
      try {
        const found = await api.job("filters/measure", {
          keys: realKeys(), ...goal(), ...bounds(), policy: chosen.policy, seed: need.seed,
        }, { signal, onProgress: realBar.show });
        if (!signal.aborted) showReal(found);
      } catch (error) {
        if (!signal.aborted) replace(realBox, h("p", { class: "problem" }, error.message));
        throw error;
      } finally {
        if (!signal.aborted) { realBar.end(); realBox.classList.remove("stale"); measureTimes(); }
      }
    }).catch(notify);
    const measureSoon = calm(measureNow, 250);
    const showReal = (found) => {
      charts.forEach((each) => each.end());
      charts = found.levels.map((level, index) => {
        const name = found.levels.length > 1 ? `Level ${index}: ` : "";
        const full = level.threshold !== null && level.threshold <= 512 ? `, full at ${level.threshold} ${found.unit}` : "";
        const drawing = histogram({
          label: `${name}blocks by their ${found.unit}`, height: found.levels.length > 1 ? 230 : 280,
          x: { label: `${found.unit} in a block` }, y: { label: "share of blocks" }, bars: level.measured, outline: level.predicted,
        });
        drawing.element.prepend(h("div", {}, name && h("h3", {}, `Level ${index}`), h("p", { class: "hint" }, `${count(level.blocks)} blocks${full}`)));
        return drawing;
      });
      const rows = found.rows.map((row) => ({
        name: NAMES[row.name], predicted: row.predicted, measured: row.measured, low: row.low, high: row.high, keys: COUNTED.includes(row.name) ? found.plan.keys : null,
      }));
      rows.splice(1, 0, {
        name: "false positives, by asking for absent keys", asked: found.asked, positives: found.positives, predicted: found.expected, measured: found.positives,
        low: found.interval[0] * found.asked, high: found.interval[1] * found.asked,
      });
      const value = (row, each) => [number(each, 4), row.keys && h("span", { class: "hint block" }, `${whole(each * row.keys)} keys`)];
      replace(realBox,
        charts.length ? h("div", { class: [null, null, "pair"][charts.length] ?? (charts.length > 2 ? "trio" : null) }, charts.map((each) => each.element))
          : h("p", { class: "hint" }, "A standard filter has no blocks: its bits lie anywhere, so there is no load to draw."),
        dataTable({
          caption: `${found.policy}, ${found.filters} filters of ${count(found.plan.keys)} keys. Range: least and most of the filters; of the false positives, the exact 95 % interval of their mean number.`,
          rows,
          columns: [
            { key: "name", label: "", align: "left" },
            { label: "predicted", cell: (row) => (row.asked ? `${expected(row.predicted)} expected` : value(row, row.predicted)) },
            { label: "measured", cell: (row) => (row.asked ? `${whole(row.positives)} of ${whole(row.asked)}` : value(row, row.measured)) },
            { label: "range", cell: (row) => `${number(row.low, 4)} … ${number(row.high, 4)}` },
            { label: "difference", cell: (row) => (row.asked ? verdict(row) : difference(row)) },
          ],
        }));
    };

    let due = true;  // curves are to be drawn anew
    let turn = 0;
    const refresh = async () => {
      turn += 1;
      const mine = turn;
      if (due) { drawingSlow.abort(); curveBar.end(); await drawQuick(); }
      if (mine !== turn) return;
      await plan();
      if (mine !== turn || !due) return;
      due = false;
      drawSlow();
    };
    const soon = calm(refresh, 120);
    const changed = ({ curves = false } = {}) => { due ||= curves; remember(); draw(); soon(); };
    refresh();
    return () => {
      turn += 1;
      soon.cancel(); measureSoon.cancel();
      drawingQuick.abort(); drawingSlow.abort(); planning.abort(); measuring.abort(); timing.abort();
      chart.end(); charts.forEach((each) => each.end());
    };
  },
};

// A handful of false positives scatters widely: a percentage would say more than is known. What can be said is whether
// the number that was expected lies in the interval.
function verdict(row) {
  const within = row.low <= row.predicted && row.predicted <= row.high;
  return h("span", { class: within ? null : "warn" }, within ? "as expected" : `${expected(row.predicted)} is outside`);
}

// How far the measurement is from the prediction; calm where the range holds the prediction or 1 % is not exceeded.
function difference(row) {
  if (row.predicted === 0) return row.measured === 0 ? "–" : "new";
  const relative = row.measured / row.predicted - 1;
  const within = (row.low <= row.predicted && row.predicted <= row.high) || Math.abs(relative) < 0.01;
  if (relative === 0) return "0";
  const text = `${relative >= 0 ? "+" : "−"}${percent(Math.abs(relative), 2)}`;
  return h("span", { class: within ? "good" : "warn", title: within ? "the prediction is in the range, or less than 1 % off" : "the prediction is outside of the range" }, text);
}
