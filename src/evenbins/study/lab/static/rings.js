// The page Rings: CH-BL and RJ-CH beside each other; keys arrive, servers are killed, drained, added.
//
// The view is a list of events in the address (events=k150.x3.k50); the server replays it on two real rings and sends
// the steps, this page plays them. What is done while the film stands in the middle happens there: later steps are
// cut off.

import { only } from "./api.js";
import { histogram } from "./chart.js";
import { calm, card, copyBox, segmented, slider } from "./controls.js";
import { h, replace } from "./dom.js";
import { number } from "./format.js";
import { calmMotion, player, sceneStyle } from "./player.js";
import { ringScene } from "./ring_scene.js";

const SIDES = [["clockwise", "CH-BL", "a full server passes keys to its neighbour"], ["jump", "RJ-CH", "a full server's keys jump, each its own way"]];
const DEFAULTS = { servers: 20, keys: 200, epsilon: 0.25, bound: "fixed", copies: 1, seed: 12, events: "k182" };
const ROWS = [
  ["keys", "Keys on serving servers"], ["limit", "Limit of a server"], ["full", "Full servers"],
  ["variance", "Variance of loads"], ["next", "Servers that one more key looks at"], ["searches", "Servers looked at, mean of all keys"], ["moved", "Keys moved by the last change"],
];
const ACTIONS = [["x", "Kill", "mark_down"], ["d", "Drain", "drain"], ["u", "Bring up", "mark_up"], ["r", "Remove", "remove_node"]];

function mount(root, { state, api, notify }) {
  const values = Object.fromEntries(Object.entries(DEFAULTS).map(([name, fallback]) => {
    const given = state.get(name, String(fallback));
    return [name, typeof fallback === "number" && given.trim() !== "" && Number.isFinite(Number(given)) ? Number(given) : given];
  }));
  let data = null;
  let acting = false;  // an action is being played: the next one comes after it, not in its middle
  let queue = Promise.resolve();
  const latest = only();
  const styled = sceneStyle();
  const gone = new AbortController();
  let shown = null;  // what the counters stand for
  let predicted = {};
  let asking = false;

  // --- the parts of the page ---
  const set = (name, soon = true) => (value) => {
    values[name] = value;
    state.set({ [name]: value === DEFAULTS[name] ? null : value, at: null });
    if (name === "servers") { values.events = `k${Math.min(1200, Math.round(0.75 * values.keys))}`; state.set({ events: values.events }); }
    (soon ? later : load)();
  };
  const within = (name, low, high) => (Number.isFinite(values[name]) && values[name] >= low && values[name] <= high ? values[name] : DEFAULTS[name]);
  const controls = [
    slider({ label: "Servers", min: 3, max: 60, least: 2, value: within("servers", 2, 60), whole: true, onChange: set("servers") }),
    slider({ label: "ε", unit: "room above the mean", scale: "log", min: 0.02, max: 3, value: within("epsilon", 0.02, 3), digits: 2, onChange: set("epsilon") }),
    segmented({ label: "Limit", choices: [["fixed", "of planned keys"], ["growing", "of keys there are"]], value: values.bound, onChange: set("bound", false) }),
    slider({ label: "Planned keys", min: 10, max: 1200, least: 1, value: within("keys", 1, 1200), whole: true, help: "The fixed limit is ⌈(1+ε) · planned keys / servers⌉, as in the paper.", onChange: set("keys") }),
    segmented({ label: "Places of a server (CH-BL)", choices: [["1", "1"], ["7", "7"]], value: String(values.copies), onChange: (value) => set("copies", false)(Number(value)) }),
    slider({ label: "Seed", min: 0, max: 100, most: 2 ** 32 - 1, value: within("seed", 0, 2 ** 32 - 1), whole: true, onChange: set("seed") }),
  ];
  const scenes = Object.fromEntries(SIDES.map(([policy, name]) => [policy, ringScene({ name, onPick: openMenu })]));
  const play = player({
    label: "Keys and changes", onShow: show, speed: 12,
    speeds: [[2, "2 keys a second"], [12, "12 a second"], [40, "40 a second"], [200, "200 a second"]],
    onRest: (at) => { acting = false; state.set({ at: data && at < data.steps.length ? at : null }, { step: false }); },
  });
  const arrive = (many) => h("button", { type: "button", onclick: () => happen(`k${many}`) }, many === 1 ? "Add 1 key" : `Add ${many} keys`);
  const join = h("button", { type: "button", onclick: () => happen("a") }, "Add a server");
  const anew = h("button", { type: "button", class: "quiet", onclick: () => { values.events = ""; state.set({ events: "", at: null }, { now: true }); load(0); } }, "Start empty");
  const caption = h("p", { class: "caption", role: "status" });
  const history = h("p", { class: "hint events" });
  const menu = h("div", { class: "menu", role: "menu", hidden: true });
  const stage = h("section", { class: "card stage", tabindex: 0, "aria-label": "The two rings. Space plays and pauses, arrows step." },
    h("div", { class: "circles" }, SIDES.map(([policy, name, words]) => h("div", { class: "side" },
      h("h2", {}, name, h("span", { class: "hint" }, ` ${words}`)), scenes[policy].element))),
    h("p", { class: "legend" }, [["load", "keys"], ["full", "full"], ["down", "down"], ["drained", "drained"], ["hop", "passed on"], ["moved", "moved by a change"]].map(([kind, text]) =>
      h("span", { class: "key" }, h("i", { class: `swatch ring-${kind}` }), text))),
    caption, play.element,
    h("div", { class: "row" }, arrive(1), arrive(10), arrive(100), join, anew, h("span", { class: "hint" }, "Click a server to kill, drain, bring up or remove it.")),
    history, menu);
  const counters = h("div", { class: "tablebox", tabindex: 0, role: "region", "aria-label": "Counters" });
  const bars = Object.fromEntries(SIDES.map(([policy, name]) => [policy, histogram({ label: `Loads of ${name}`, x: { label: "keys of a server" }, y: { label: "servers" }, height: 200, zoom: false, names: ["now", "predicted"] })]));
  const python = copyBox({ label: "Python" });
  root.append(
    h("h1", {}, "Rings"),
    h("p", { class: "lede" }, "Both rings get the same keys and keep the same limit. In CH-BL a full server hands its keys to the next one on the circle, which is full the sooner: chains of full servers grow. In RJ-CH each key jumps on its own."),
    h("div", { class: "split" },
      h("section", { class: "controls", "aria-label": "Controls" }, controls.map((each) => each.element),
        h("p", { class: "hint" }, "With 7 places a server CH-BL is much closer to RJ-CH: arcs are more even, and a full server has seven neighbours.")),
      h("div", { class: "stack" }, stage,
        card("Counters", counters, h("div", { class: "pair" }, SIDES.map(([policy, name]) => h("div", {}, h("h3", {}, `Loads, ${name}`), bars[policy].element))),
          h("p", { class: "hint" }, "Predicted: study.theory.rings, for as many keys on as many servers, without churn; – where no law is known. A circle of 20 scatters around it.")),
        card("The same in Python", python.element))),
  );
  play.shortcuts(stage);

  // --- events ---
  // The events that have happened up to here: the last one may be cut.
  function happened() {
    if (!data) return [];
    if (acting) return [...data.events];
    const done = data.steps.slice(0, play.at);
    const keys = new Map();
    for (const step of done) keys.set(step.event, (keys.get(step.event) ?? 0) + 1);
    return data.events.filter((_, i) => keys.has(i)).map((event, i) => (event[0] === "k" ? `k${keys.get(i)}` : event));
  }

  function happen(event) {
    queue = queue.then(() => act(event));
    return queue;
  }

  async function act(event) {
    const before = happened();
    const last = before.length - 1;
    if (event[0] === "k" && last >= 0 && before[last][0] === "k") before[last] = `k${Number(before[last].slice(1)) + Number(event.slice(1))}`;
    else before.push(event);
    const earlier = values.events;
    values.events = before.join(".");
    if (await load(play.at)) state.set({ events: values.events, at: null }, { now: true });
    else if (data) values.events = earlier;  // refused, and said so
  }

  // --- the menu of a server ---
  function openMenu(server, place) {
    const now = current();
    const its = now.clockwise.states[server] ?? "up";
    const usable = { x: its !== "down", d: its === "up", u: its !== "up", r: now.order.length > 1 };
    const opener = document.activeElement;
    replace(menu, h("strong", {}, `Server ${server}`), ACTIONS.filter(([kind]) => usable[kind]).map(([kind, text, call]) =>
      h("button", { type: "button", role: "menuitem", onclick: () => { closeMenu(); happen(`${kind}${server}`).then(() => opener?.isConnected && opener.focus?.()); } }, text, h("code", {}, call))));
    menu.hidden = false;
    const frame = stage.getBoundingClientRect();
    const left = Math.min(Math.max(8, place.left + place.width / 2 - frame.left - menu.offsetWidth / 2), frame.width - menu.offsetWidth - 8);
    const below = place.bottom - frame.top + 8;
    menu.style.left = `${left}px`;
    menu.style.top = `${below}px`;
    menu.opener = opener;
    menu.querySelector("button").focus({ preventScroll: true });
  }

  function closeMenu() { menu.hidden = true; }
  menu.addEventListener("keydown", (event) => {
    const items = [...menu.querySelectorAll("button")];
    const at = items.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 }[event.key];
    if (event.key === "Escape") { closeMenu(); menu.opener?.focus?.(); }
    if (next !== undefined) { event.preventDefault(); items[next % items.length].focus(); }
  });
  const outside = (event) => { if (!menu.hidden && !menu.contains(event.target) && !event.target.closest?.(".server")) closeMenu(); };
  document.addEventListener("pointerdown", outside);
  menu.addEventListener("focusout", (event) => { if (!menu.contains(event.relatedTarget) && event.relatedTarget) closeMenu(); });

  // --- what is shown ---
  function current() {
    const found = { order: data.start.order };
    for (const [policy] of SIDES) found[policy] = { ...data.start[policy], loads: { ...data.start[policy].loads }, moved: null };
    for (const step of data.steps.slice(0, play.at)) {
      if (step.order) found.order = step.order;
      for (const [policy] of SIDES) {
        const side = found[policy];
        const { limit, full, variance, searches, next, loads, states, node, moves } = step[policy];
        Object.assign(side, { limit, full, variance, searches, next });
        if (step.kind === "k") { if (node !== null) side.loads[node] += 1; }
        else Object.assign(side, { loads: { ...loads }, states, moved: moves.length });
      }
    }
    return found;
  }

  function words(step) {
    if (!step) return "No key has arrived yet.";
    if (step.kind === "k") {
      const told = SIDES.map(([policy, name]) => {
        const { node, path } = step[policy];
        if (node === null) return `${name} has no room for it`;
        return path.length === 1 ? `${name}: server ${node}` : `${name}: ${path.slice(0, -1).slice(0, 6).join(", ")}${path.length > 7 ? " …" : ""} full, then server ${node}`;
      });
      return `Key ${step.key}. ${told.join(". ")}.`;
    }
    const what = { x: "fails", d: "is drained", u: "serves again", r: "is removed", a: "joins" }[step.kind];
    const told = SIDES.map(([policy, name]) => {
      const { refused, moves } = step[policy];
      if (refused) return `${name} refuses: ${refused}`;
      const aims = new Set(moves.map(([, , to]) => to)).size;
      const from = new Set(moves.map(([, source]) => source)).size;
      if (!moves.length) return `${name}: no key moves`;
      const keys = moves.length === 1 ? "1 key moves" : `${moves.length} keys move`;
      if (step.kind === "x" || step.kind === "r") return `${name}: ${keys} to ${aims} server${aims === 1 ? "" : "s"}`;
      return `${name}: ${keys} to it from ${from} server${from === 1 ? "" : "s"}`;
    });
    return `Server ${step.server} ${what}. ${told.join(". ")}.`;
  }

  function show(at, forward = false) {
    if (!data) return;
    const now = current();
    const step = at > 0 ? data.steps[at - 1] : null;
    for (const [policy] of SIDES) {
      const side = now[policy];
      const last = step?.[policy] ?? {};
      scenes[policy].show({
        order: now.order, loads: side.loads, states: side.states, limit: side.limit, path: last.path ?? [], node: last.node ?? null,
        moves: last.moves ?? [], changed: step && step.kind !== "k" ? step.server : null, alive: forward && !calmMotion(),
      });
      const serving = now.order.filter((server) => !(server in side.states));
      const seen = new Map();
      for (const server of serving) seen.set(side.loads[server], (seen.get(side.loads[server]) ?? 0) + 1);
      side.serving = serving.length;
      side.keys = serving.reduce((sum, server) => sum + side.loads[server], 0);
      side.bars = [...seen].sort((a, b) => a[0] - b[0]);
    }
    const text = words(step);
    if (caption.textContent !== text) caption.textContent = text;
    shown = now;
    count();
    foresee();
  }

  function count() {
    const now = shown;
    const cell = (policy, name) => {
      const value = now[policy][name];
      if (name === "full") return `${value} of ${now[policy].serving}`;
      return value === null || value === undefined ? "–" : number(value, 4);
    };
    const law = (policy, name) => {
      const value = predicted[policy]?.[name];
      return value === null || value === undefined ? "–" : number(value, 3);
    };
    replace(counters, h("table", { class: "counters" },
      h("thead", {}, h("tr", {}, h("td", {}), SIDES.map(([, name]) => [h("th", { scope: "col" }, name), h("th", { scope: "col" }, "predicted")]))),
      h("tbody", {}, ROWS.map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, text),
        SIDES.map(([policy]) => [h("td", { "data-value": `${policy}-${name}` }, cell(policy, name)), h("td", { class: "soft", "data-value": `${policy}-${name}-predicted` }, law(policy, name))]))))));
    for (const [policy] of SIDES) {
      bars[policy].update({ bars: now[policy].bars, outline: (predicted[policy]?.loads ?? []).map((share, load) => [load, share * now[policy].serving]) });
    }
  }

  // Predictions follow the view: one question at a time, and another when the view has changed meanwhile.
  async function foresee() {
    if (asking) return;
    asking = true;
    try {
      for (let done = null; done !== shown && !gone.signal.aborted;) {
        done = shown;
        const asked = SIDES.map(([policy]) => [policy, done[policy].serving, done[policy].keys]).filter(([, serving]) => serving > 0);
        const each = await Promise.all(asked.map(([, servers, keys]) => api.get("rings/theory", {
          servers, keys, epsilon: values.epsilon, bound: values.bound, copies: values.copies, limit: data.limit,
        }, { signal: gone.signal })));
        predicted = Object.fromEntries(asked.map(([policy], i) => [policy, each[i][policy]]));
        count();
        if (play.running) await new Promise((resolve) => { setTimeout(resolve, 120); });
      }
    } catch (error) { notify(error); }
    asking = false;
  }

  async function load(from = null) {
    closeMenu();
    try {
      const found = await latest((signal) => api.get("rings/replay", values, { signal }));
      if (!found) return false;
      await styled;
      notify(null);
      data = found;
      predicted = {};
      python.set(data.python.trimEnd());
      replace(history, data.events.length ? ["Events: ", h("code", {}, data.events.join("."))] : "No events yet.");
      const asked = state.get("at");
      const end = data.steps.length;
      const at = from ?? (asked !== null && /^\d+$/.test(asked) ? Math.min(end, Number(asked)) : end);
      play.load(end, Math.min(at, end));
      acting = from !== null;
      if (acting) play.run();
      return true;
    } catch (error) {
      notify(error);
      return false;
    }
  }
  const later = calm(() => load(), 160);

  load();
  return () => {
    latest.abort();
    gone.abort();
    later.cancel();
    play.end();
    document.removeEventListener("pointerdown", outside);
    for (const [policy] of SIDES) bars[policy].end();
  };
}

export default { title: "Rings", mount };
