// The page Fingerprints: one block of a small fingerprint filter, line by line.
//
// The server answers with the lines of a real filter for every number of keys (fingerprints/block); fingerprint_scene.js
// draws them. What a change did is told by comparing two answers: runs that left their line, or came back.

import { only } from "./api.js";
import { calm, card, copyBox, slider } from "./controls.js";
import { h, replace } from "./dom.js";
import { fingerprintScene, zoomedLine } from "./fingerprint_scene.js";
import { expected, nanoseconds, number, whole } from "./format.js";
import { sceneStyle } from "./player.js";

const MOST = 2250;
const LINES = 128;
const DEFAULTS = { keys: 1900, turns: 0, line: 1, seed: 1 };
const NAMES = {
  fpr: "False-positive rate", fill: "Slots of level 1 in use", reads: "Lines read to find a key", miss_reads: "Lines read for an absent key",
  "in level 1": "Keys in level 1", "in level 2": "Keys in level 2", "in level 3": "Keys in level 3", "in the rest": "Keys in the rest",
};

function mount(root, { state, api, notify }) {
  const problem = (text) => notify(text);
  const values = {
    keys: state.number("keys", DEFAULTS.keys, { min: 0, max: MOST, whole: true, problem }),
    turns: state.number("turns", DEFAULTS.turns, { min: 0, max: 5, whole: true, problem }),
    line: state.number("line", DEFAULTS.line, { min: 1, max: LINES, whole: true, problem }),
    seed: state.number("seed", DEFAULTS.seed, { min: 0, max: 2 ** 32 - 1, whole: true, problem }),
  };
  const latest = only();
  const styled = sceneStyle();
  let found = null;

  const set = (name, ...then) => (value) => {
    values[name] = value;
    state.set({ [name]: value === DEFAULTS[name] ? null : value });
    for (const each of then) each();
  };

  // --- controls ---
  const keys = slider({ label: "Keys in the filter", min: 0, max: MOST, whole: true, value: values.keys, onChange: set("keys", later) });
  const line = slider({ label: "Line to look at", min: 1, max: LINES, whole: true, value: values.line, onChange: set("line", drawLine) });
  const to = (wanted) => { const many = Math.min(MOST, Math.max(0, wanted)); keys.set(many); set("keys", later)(many); };
  const step = (many, name) => h("button", { type: "button", class: "small", onclick: () => to(values.keys + many) }, name);
  const until = (level, name) => h("button", { type: "button", class: "small", onclick: () => { if (found) to(found.first_uses[level]); } }, name);
  const controls = h("section", { class: "controls", "aria-label": "Controls" },
    keys.element,
    h("div", { class: "row" }, step(-100, "Remove 100"), step(-1, "Remove one"), step(1, "Add one"), step(100, "Add 100")),
    h("div", { class: "row" }, until(0, "First overflow"), until(1, "Level 3"), until(2, "The rest"),
      h("button", { type: "button", class: "small", onclick: () => to(0) }, "Empty")),
    line.element,
    slider({ label: "Turnovers", scale: "choice", choices: [0, 1, 2, 3, 4, 5], value: values.turns, help: "How often all keys were replaced before. The picture stays the same, and so do the bytes.", onChange: (value) => set("turns", later)(Number(value)) }).element,
    slider({ label: "Seed", min: 0, max: 100, most: 2 ** 32 - 1, whole: true, value: values.seed, onChange: set("seed", later) }).element);

  // --- the picture ---
  const scene = fingerprintScene({ onPick: (picked) => { line.set(picked); set("line", drawLine)(picked); } });
  const caption = h("p", { class: "caption", role: "status" });
  const zoom = h("div", {});
  const tallies = h("div", { class: "tablebox", tabindex: 0, role: "region", "aria-label": "Planned beside counted" });
  const same = h("p", { class: "hint", "data-value": "same" });
  const python = copyBox({ label: "Python" });

  root.append(
    h("h1", {}, "Fingerprints"),
    h("p", { class: "lede" }, "A fingerprint filter keeps a short hash of every key in a line of 64 bytes, so that keys can be removed again. Lines fill unevenly. What happens to a line that is full, and what when a key leaves it?"),
    h("div", { class: "split" }, controls, h("div", { class: "stack" },
      h("section", { class: "card stage", "aria-label": "A block of the filter" },
        h("h2", {}, "One block: 128 lines, and what they cannot hold"),
        scene.element, caption),
      card("One line", zoom))),
    h("div", { class: "stack below" },
      card("Planned beside counted", tallies, same),
      card("How to read it",
        h("p", {}, "The hash of a key says which line it belongs to, which of the 64 quotients of that line, and a remainder. The keys of one quotient are a run. A line has 17 slots, and holds the runs of its smallest quotients, whole ones only, as many as fit."),
        h("p", {}, "A run that does not fit goes to level 2, which has one line for eight of level 1; the bit of its quotient stays set, so a look-up knows that it has to read a second line, and one for an absent key mostly stops at the first. What level 2 cannot hold goes to level 3, eight fingerprints, and at last to a list, the rest."),
        h("p", {}, "When a key is removed and the next run fits again, it comes back at once. So what is where depends on the keys alone, not on what happened before: move the turnovers, and nothing changes. Two filters with the same keys have the same bytes.")),
      card("The same filter in Python", python.element)));

  // What has changed since the last picture, in words.
  function told(before, after) {
    if (!before) return `${after.keys} keys are in the filter. Orange lines have runs elsewhere.`;
    const more = after.keys - before.keys;
    const parts = more ? [`${Math.abs(more)} ${Math.abs(more) === 1 ? "key was" : "keys were"} ${more > 0 ? "added" : "removed"}`] : ["The keys are the same"];
    const left = [];
    const back = [];
    after.lines.forEach((now, i) => {
      const was = new Set(before.lines[i].away.map(([quotient]) => quotient));
      const is = new Set(now.away.map(([quotient]) => quotient));
      const ran = new Set(before.lines[i].here.map(([quotient]) => quotient));
      for (const quotient of is) if (!was.has(quotient)) left.push([i + 1, quotient, ran.has(quotient)]);
      for (const [quotient] of now.here) if (was.has(quotient)) back.push([i + 1, quotient]);
    });
    const out = left.filter(([, , was]) => was);
    if (out.length === 1) parts.push(`line ${out[0][0]} is full: its run of quotient ${out[0][1]} went to level 2`);
    else if (out.length) parts.push(`${out.length} runs left their lines for level 2`);
    if (left.length > out.length) parts.push(`${left.length - out.length} new ${left.length - out.length === 1 ? "run" : "runs"} of full lines began in level 2`);
    if (back.length === 1) parts.push(`line ${back[0][0]} has room again: its run of quotient ${back[0][1]} came back`);
    else if (back.length) parts.push(`${back.length} runs came back to their lines`);
    if (after.third !== before.third) parts.push(`level 3 holds ${after.third}`);
    if (after.rest !== before.rest) parts.push(`the rest ${after.rest}`);
    return `${parts.join("; ")}.`;
  }

  function drawLine() {
    if (!found) return;
    scene.choose(values.line);
    replace(zoom, zoomedLine(found, values.line));
  }

  function draw(before) {
    scene.load(found);
    caption.textContent = told(before, found);
    drawLine();
    const written = (value) => (Math.abs(value) < 1e-12 ? "0" : number(value, 4));
    const beside = (name, planned, counted) => {
      if (name.startsWith("in ")) return `${whole(counted * found.keys)} of ${whole(found.keys)}; ${expected(planned * found.keys)} expected`;
      return nanoseconds(found.ns[name]);
    };
    replace(tallies, h("table", { class: "tallies" }, h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "planned"), h("th", { scope: "col" }, "counted"), h("td", {}))),
      h("tbody", {}, found.rows.map(([name, planned, counted]) => h("tr", {}, h("th", { scope: "row" }, NAMES[name]), h("td", { class: "soft" }, written(planned)), h("td", { "data-value": name }, written(counted)), h("td", { class: "soft left" }, beside(name, planned, counted)))))),
    h("p", { class: "hint" }, "Planned is the mean over many filters with as many keys; one block scatters around it. Nanoseconds per look-up are measured on this machine, in bulk by one thread; so small a filter is in the nearest cache."));
    same.textContent = found.same
      ? `Bytes ${found.checksum}: those of a filter to which the same keys were added at once.`
      : "The bytes differ from those of a fresh filter: this is a bug.";
    python.set(found.python.trimEnd());
  }

  async function load() {
    try {
      const answer = await latest((signal) => api.get("fingerprints/block", { keys: values.keys, turns: values.turns, seed: values.seed }, { signal }));
      await styled;
      if (!answer) return;
      const before = found;
      found = answer;
      notify(null);
      draw(before);
    } catch (error) { notify(error); }
  }

  const soon = calm(() => load(), 60);
  function later() { soon(); }

  load();
  return () => { latest.abort(); soon.cancel(); };
}

export default { title: "Fingerprints", mount };
