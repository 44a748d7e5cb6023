// The page Tables: overflow against space for all schemes; below, a small table that fills step by step.
//
// The curves come at once (they were computed before), the marked point follows the sliders, the exact designs are a
// job. The small table is a story told by the server (tables/story); table_scene.js shows it.

import { only } from "./api.js";
import { lineChart } from "./chart.js";
import { calm, card, copyBox, dataTable, facts, progress, segmented, select, slider, toggle } from "./controls.js";
import { h, replace } from "./dom.js";
import { bytes, count, nanoseconds, number, percent, plain } from "./format.js";
import { calmMotion, player, sceneStyle } from "./player.js";
import { tableScene } from "./table_scene.js";

const SCHEMES = ["standard", "conservative", "second-chance", "extreme-second-chance", "least-loaded"];
const SLOTS = [1, 2, 4, 8];
const DEFAULTS = {
  keys: 1e6, goal: "overflow", overflow: 0.002, space: 1.3, levels: 4, slots: 1, scheme: "second-chance", deletions: 0, show: "same",
  n: 40, room: 1.1, seed: 1,
};

function mount(root, { state, api, notify }) {
  const values = Object.fromEntries(Object.entries(DEFAULTS).map(([name, fallback]) => {
    const given = state.get(name, String(fallback));
    return [name, typeof fallback === "number" && given.trim() !== "" && Number.isFinite(Number(given)) ? Number(given) : given];
  }));
  const latest = { curves: only(), point: only(), designs: only(), story: only() };
  const styled = sceneStyle();
  let curves = null;
  let chosen = null;
  let story = null;

  // Each question may fail on its own: the notice stays until its question has been answered.
  const problems = new Map();
  const answered = (name, error = null) => {
    if (error?.name === "AbortError") return;
    if (error) problems.set(name, error);
    else if (!problems.delete(name)) return;
    notify(problems.size ? [...problems.values()].at(-1) : null);
  };

  const within = (name, low, high) => (Number.isFinite(values[name]) && values[name] >= low && values[name] <= high ? values[name] : DEFAULTS[name]);
  const set = (name, ...then) => (value) => {
    values[name] = value;
    state.set({ [name]: String(value) === String(DEFAULTS[name]) ? null : value, ...(["n", "room", "seed", "scheme", "levels", "slots", "deletions"].includes(name) ? { at: null } : {}) });
    for (const each of then) each();
  };

  // --- controls ---
  const overflow = slider({ label: "Overflow", unit: "fraction of keys", scale: "log", min: 1e-6, max: 0.1, digits: 2, value: within("overflow", 1e-6, 0.1), onChange: set("overflow", laterPoint) });
  const space = slider({ label: "Space", unit: "slots per key", min: 0.95, max: 3, least: 0.9, most: 6, step: 0.005, value: within("space", 0.9, 6), onChange: set("space", laterPoint) });
  const showGoal = () => { overflow.element.hidden = values.goal === "space"; space.element.hidden = values.goal !== "space"; };
  const scheme = select({ label: "Scheme", choices: SCHEMES.map((each) => [each, each]), value: SCHEMES.includes(values.scheme) ? values.scheme : DEFAULTS.scheme, onChange: set("scheme", laterPoint, laterStory) });
  const slots = segmented({ label: "Slots of a bucket", choices: SLOTS.map((each) => [String(each), String(each)]), value: String(values.slots), onChange: (value) => set("slots", draw, laterPoint, laterDesigns, laterStory)(Number(value)) });
  const controls = h("section", { class: "controls", "aria-label": "Controls" },
    slider({ label: "Keys", scale: "log", min: 1e3, max: 1e12, digits: 2, whole: true, value: within("keys", 1e3, 1e12), format: count, onChange: set("keys", laterPoint, laterDesigns) }).element,
    segmented({ label: "Goal", choices: [["overflow", "Overflow"], ["space", "Space"]], value: values.goal, onChange: set("goal", showGoal, laterPoint) }).element,
    overflow.element, space.element,
    scheme.element,
    slider({ label: "Levels", scale: "choice", choices: [2, 3, 4, 5, 6], value: within("levels", 2, 6), help: "Buckets that a look-up of an absent key reads.", onChange: set("levels", loadCurves, laterStory) }).element,
    slots.element,
    toggle({ label: "Deletions", value: String(values.deletions) === "1", help: "endless ones, each followed by an insertion", onChange: (on) => set("deletions", loadCurves, laterStory)(on ? 1 : 0) }).element,
    segmented({ label: "Curves and designs", choices: [["same", "these slots"], ["all", "all slots"]], value: values.show, onChange: set("show", draw, laterDesigns) }).element);

  // --- curves, point, designs ---
  const chart = lineChart({ label: "Overflow against space", height: 400, x: { label: "slots per key" }, y: { label: "overflow, fraction of keys", log: true, min: 1e-6, max: 0.1 } });
  const note = h("p", { class: "hint" });
  const numbers = h("div", { "data-value": "point" });
  const python = copyBox({ label: "Python" });
  const command = copyBox({ label: "command" });
  const bar = progress({ label: "Designs planned", onCancel: () => { latest.designs.abort(); bar.end(); replace(rows, h("p", { class: "hint" }, "Cancelled. "), h("button", { type: "button", class: "small", onclick: () => loadDesigns() }, "Plan them")); } });
  const rows = h("div", {});

  // --- the small table ---
  const scene = tableScene();
  const caption = h("p", { class: "caption", role: "status" });
  const tallies = h("div", { class: "tablebox", tabindex: 0, role: "region", "aria-label": "Counters of the small table" });
  const play = player({
    label: "Steps of the small table", onShow: showStep, speed: 4,
    speeds: [[1.5, "slow"], [4, "4 steps a second"], [15, "15 a second"], [60, "60 a second"]],
    jump: { name: "To the end of this key", next: (at) => scene.next(at) },
    onRest: (at) => state.set({ at }, { step: false }),
  });
  const seek = (what, text) => h("button", { type: "button", class: "small", onclick: () => {
    const at = scene.find(what);
    if (at) play.go(at); else caption.textContent = what === "take" ? "Nothing is deleted here: switch deletions on." : "Nothing of the sort happens here: take less space, or another seed.";
  } }, text);
  const smallPython = copyBox({ label: "Python" });
  const stage = h("section", { class: "card stage", tabindex: 0, "aria-label": "A small table, step by step. Space plays and pauses, arrows step." },
    h("h2", {}, "A small table, step by step"),
    h("div", { class: "pair small" },
      slider({ label: "Keys", min: 4, max: 160, whole: true, value: within("n", 4, 160), onChange: set("n", laterStory) }).element,
      slider({ label: "Space", unit: "slots per key", min: 0.8, max: 3, step: 0.01, value: within("room", 0.8, 3), onChange: set("room", laterStory) }).element,
      slider({ label: "Seed", min: 0, max: 100, most: 2 ** 32 - 1, whole: true, value: within("seed", 0, 2 ** 32 - 1), onChange: set("seed", laterStory) }).element),
    scene.element, caption, play.element,
    h("div", { class: "row" }, seek("move", "First move"), seek("list", "First overflow"), seek("take", "First deletion"), h("span", { class: "hint" }, "The double arrow goes to the end of a key.")),
    tallies);

  root.append(
    h("h1", {}, "Tables"),
    h("p", { class: "lede" }, "A key has one bucket in each level. If all are full, one resident may move; what still finds no room goes to a small list. How much space does a scheme need for so small a list?"),
    h("div", { class: "split" }, controls, h("div", { class: "stack" },
      card("Overflow against space", chart.element, note, numbers, python.element, command.element),
      card("Designs", bar.element, rows))),
    h("div", { class: "stack below" }, stage, card("The same table in Python", smallPython.element)));
  play.shortcuts(stage);

  function seriesName(each) {
    return values.show === "all" || each.slots !== Number(values.slots) ? `${each.scheme}, ${each.slots}` : each.scheme;
  }

  function draw() {
    if (!curves) return;
    const wanted = curves.series.filter((each) => values.show === "all" || each.slots === Number(values.slots));
    const series = wanted.map((each) => ({
      id: `${each.scheme} ${each.slots}`, name: seriesName(each), points: each.points, colour: SCHEMES.indexOf(each.scheme),
      dash: values.show === "all" ? [0, 3, 1, 2][SLOTS.indexOf(each.slots)] : 0, focus: each.scheme === values.scheme && each.slots === Number(values.slots),
    }));
    const xs = wanted.flatMap((each) => each.points.map(([x]) => x));
    const far = Math.max(...xs, 1.02 * (chosen?.space ?? 0));
    const marks = chosen ? [{ x: chosen.space, y: chosen.overflow, label: `${number(chosen.space, 4)} slots per key` }] : [];
    chart.update({ series, marks, x: { label: "slots per key", min: Math.floor(Math.min(...xs) * 20) / 20, max: Math.min(far, Math.max(2.6, 1.15 * (chosen?.space ?? 0))) } });
    const churn = String(values.deletions) === "1" ? " under deletions" : "";
    note.textContent = [
      curves.missing.length ? `Without a curve${churn}: ${curves.missing.join("; ")} (no equations; the small table below has them all).` : "",
      curves.slow.length ? `Left out, since it takes a quarter of an hour: ${curves.slow.join("; ")}.` : "",
    ].join(" ");
  }

  async function loadCurves() {
    laterDesigns();
    try {
      const found = await latest.curves((signal) => api.get("tables/curves", { levels: values.levels, deletions: values.deletions }, { signal }));
      if (!found) return;
      curves = found;
      answered("curves");
      draw();
      await loadPoint();
    } catch (error) { answered("curves", error); }
  }

  function known() {
    return curves?.series.some((each) => each.scheme === values.scheme && each.slots === Number(values.slots));
  }

  async function loadPoint() {
    const right = SCHEMES.includes(values.scheme) && SLOTS.includes(Number(values.slots));
    if (right && !known()) {
      chosen = null;
      answered("point");
      replace(numbers, h("p", { class: "hint" }, `${values.scheme} with ${values.slots} slots in ${values.levels} levels has no curve here${String(values.deletions) === "1" ? " under deletions" : ""}. The small table below shows it at work.`));
      python.element.hidden = command.element.hidden = true;
      draw();
      return;
    }
    try {
      const { keys, levels, goal, deletions } = values;
      const found = await latest.point((signal) => api.get("tables/point", { keys, scheme: values.scheme, levels, slots: values.slots, goal, overflow: values.overflow, space: values.space, deletions }, { signal }));
      if (!found) return;
      chosen = found;
      answered("point");
      replace(numbers, facts([
        ["Space", `${number(found.space, 4)}`, "slots per key"],
        ["Overflow", number(found.overflow), `${count(found.overflow * keys)} keys`],
        ["Insertions that move a key", percent(found.moves), `${count(found.moves * keys)} of ${count(keys)}`],
        ["Reads of an absent key", String(levels), "buckets"],
      ]));
      python.element.hidden = false;
      python.set(found.python.trimEnd());
      command.element.hidden = false;
      command.set(found.command);
      draw();
      if (!found.inside) note.textContent = "The point lies beyond the computed curve: it is continued as a straight line.";
      if (values.goal === "space" || designsFor !== wantedOverflow()) laterDesigns();
    } catch (error) { answered("point", error); }
  }

  let designsFor = null;
  const wantedOverflow = () => Math.min(0.1, Math.max(1e-6, chosen ? Number(chosen.overflow.toPrecision(3)) : values.overflow));

  async function loadDesigns() {
    const asked = wantedOverflow();
    designsFor = asked;
    bar.start("Planning every scheme exactly …");
    try {
      const found = await latest.designs((signal) => api.job("tables/designs", {
        keys: values.keys, overflow: asked, levels: values.levels, deletions: values.deletions, slots: values.show === "all" ? "all" : values.slots,
      }, { signal, onProgress: bar.show }));
      if (!found) return;
      answered("designs");
      bar.end();
      replace(rows, dataTable({
        caption: `${count(values.keys)} keys, overflow at most ${plain(asked)}; ● no other is as good in all and better in one. ns: nanoseconds per look-up, measured on this machine: bulk look-ups of integers by one thread, in tables of ${count(found.timed)} keys.`,
        columns: [
          { key: "scheme", label: "scheme", align: "left", cell: (row) => `${row.pareto ? "● " : "○ "}${row.scheme}` },
          { key: "slots", label: "slots" },
          { key: "space", label: "slots / key", format: (v) => number(v, 4) },
          { key: "bytes_per_key", label: "bytes / key", format: (v) => number(v, 4) },
          { key: "nbytes", label: "memory", format: bytes },
          { key: "overflow_limit", label: "list", format: count },
          { key: "moves", label: "moves", format: (v) => (v === null ? "–" : percent(v)) },
          { key: "reads", label: "reads", format: (v) => number(v, 4) },
          { key: "ns", label: "ns", title: "nanoseconds per look-up of a present key", format: (v) => nanoseconds(v, "") },
          { key: "miss_reads", label: "miss reads", format: (v) => number(v, 3) },
          { key: "miss_ns", label: "ns", title: "nanoseconds per look-up of an absent key", format: (v) => nanoseconds(v, "") },
        ],
        rows: found.rows,
        mark: (row) => (row.pareto ? null : "dim"),
        chosen: (row) => row.scheme === values.scheme && row.slots === Number(values.slots),
        onPick: (row) => { scheme.set(row.scheme); slots.set(String(row.slots)); set("scheme")(row.scheme); set("slots", loadPoint, loadStory)(row.slots); },
      }));
    } catch (error) {
      bar.end();
      answered("designs", error);
    }
  }

  // --- the story ---
  async function loadStory() {
    try {
      const found = await latest.story((signal) => api.get("tables/story", {
        scheme: values.scheme, levels: values.levels, slots: values.slots, keys: values.n, space: values.room, deletions: values.deletions, seed: values.seed, turns: values.n,
      }, { signal }));
      await styled;
      if (!found) return;
      story = found;
      answered("story");
      scene.load(story);
      smallPython.set(story.python.trimEnd());
      const asked = state.get("at");
      play.load(scene.length, asked !== null && /^\d+$/.test(asked) ? Number(asked) : scene.last("move") || scene.length);
    } catch (error) { answered("story", error); }
  }

  function showStep(at, forward = false) {
    if (!story) return;
    scene.show(at, { alive: forward && !calmMotion() });
    const doing = scene.doing(at);
    replace(caption, doing && [h("span", { class: doing[0] === "delete" ? "badge gone" : "badge" }, doing.join(" ")), " "], scene.words(at));
    const [done, counts] = scene.counts(at);
    const filled = Math.min(done, story.keys);
    const { filling, steady } = story.predicted ?? {};
    const churned = done > story.keys;
    const law = (name) => {
      if (churned) return name === "moves" ? null : steady?.[name] ?? null;
      return filling?.[name]?.[filled] ?? null;
    };
    const written = (value) => (value === null || value === undefined ? "–" : value < 5e-4 ? "0" : number(value, 3));
    const lines = [
      ["keys", "Keys in the table", counts?.keys ?? 0, null],
      ["overflow", "On the overflow list", counts?.overflow ?? 0, law("overflow")],
      ["moves", "Insertions that moved a key", counts?.moves ?? 0, law("moves")],
      ["reads", "Buckets read to find a key", counts?.reads ?? null, law("reads")],
      ...(counts?.returns ? [["returns", "Back from the list", counts.returns, null]] : []),
    ];
    replace(tallies, h("table", { class: "tallies" }, h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "counted"), h("th", { scope: "col" }, churned ? "in the long run" : "predicted"))),
      h("tbody", {}, lines.map(([name, words, value, predicted]) => h("tr", {}, h("th", { scope: "row" }, words), h("td", { "data-value": name }, written(value)), h("td", { class: "soft", "data-value": `${name}-predicted` }, written(predicted)))))),
    h("p", { class: "hint" }, story.truncated ? "The story is long and was cut. " : "", `Levels of the best proportions, ${number(story.space, 4)} slots per key. Predicted is the limit of many keys: a table of ${story.keys} scatters around it.`));
  }

  const soonPoint = calm(() => loadPoint(), 90);
  const soonDesigns = calm(() => loadDesigns(), 700);
  const soonStory = calm(() => loadStory(), 200);
  function laterPoint() { soonPoint(); }
  function laterDesigns() { soonDesigns(); }
  function laterStory() { soonStory(); }

  showGoal();
  loadCurves();
  loadStory();
  return () => {
    for (const each of Object.values(latest)) each.abort();
    for (const each of [soonPoint, soonDesigns, soonStory]) each.cancel();
    play.end();
    chart.end();
    scene.end();
  };
}

export default { title: "Tables", mount };
