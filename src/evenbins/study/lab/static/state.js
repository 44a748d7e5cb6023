// The view is the address: get and set parameters of the query string.
//
//   state.get("keys", "1e7")                    what the address says, or the default
//   state.set({ keys: "1e6", policy: null })    null removes; a step that the back button undoes
//   state.set({ id: "kanizo-fig5" }, { now: true })      the same, at once
//   state.set({ at: 12 }, { step: false })               no step: the entry of the history is replaced
//
// `number` and `choice` read what a page needs and say what is wrong with the address: a view that cannot be shown
// must not silently be another one.
//
// Sliders move fast and browsers count the calls, so writing waits a moment; and changes of the same parameters in
// quick succession are one step.

import { parse, plain } from "./format.js";

const ONE_GO = 1500;  // milliseconds between changes that are one step

let pending = new Map();
let timer = null;
let steps = false;  // something pending is a step
let last = { names: "", at: 0 };
let known = here();

function here() {
  return location.pathname + location.search;
}

function current() {
  const parameters = new URLSearchParams(location.search);
  for (const [name, value] of pending) {
    if (value === null) parameters.delete(name);
    else parameters.set(name, value);
  }
  return parameters;
}

function address(parameters) {
  const query = parameters.toString();
  return location.pathname + (query ? `?${query}` : "");
}

function write({ step, merge = false }) {
  clearTimeout(timer);
  const before = new URLSearchParams(location.search);
  const after = current();
  const names = [...pending.keys()].filter((name) => before.get(name) !== after.get(name)).sort().join(" ");
  pending.clear();
  steps = false;
  if (!names) return;
  const moment = performance.now();
  const same = merge && names === last.names && moment - last.at < ONE_GO;
  if (step && !same) history.pushState(null, "", address(after));
  else history.replaceState(null, "", address(after));
  if (step) last = { names, at: moment };
  known = here();
}

export const state = {
  get(name, fallback = null) {
    return current().get(name) ?? fallback;
  },
  set(values, { now = false, step = true } = {}) {
    for (const [name, value] of Object.entries(values)) {
      pending.set(name, value === null || value === undefined ? null : String(value));
    }
    steps ||= step;
    clearTimeout(timer);
    if (now) write({ step: true });
    else timer = setTimeout(() => write({ step: steps, merge: true }), 150);
  },
  // Write what is pending without a step: the page is being left.
  flush() {
    write({ step: false });
  },
  // The browser went back or forward: the address is right, what was pending is not. Gives whether it is another
  // view: a link to a place on the page is none.
  moved() {
    clearTimeout(timer);
    pending = new Map();
    steps = false;
    last = { names: "", at: 0 };
    const before = known;
    known = here();
    return known !== before;
  },
  // A number of the address, or the default; `problem` is called with a sentence if it is none or out of its range.
  number(name, fallback, { min, max, whole = false, problem }) {
    const text = state.get(name);
    if (text === null) return fallback;
    const value = parse(text);
    if (value >= min && value <= max && (!whole || Number.isInteger(value))) return value;
    problem?.(`${name} must be ${whole ? "a whole number" : "a number"} from ${plain(min)} to ${plain(max)}, not “${text.slice(0, 40)}”: ${fallback === null ? "it is left out" : `${plain(fallback)} is shown`}.`);
    return fallback;
  },
  choice(name, fallback, choices, { problem } = {}) {
    const text = state.get(name);
    if (text === null || choices.includes(text)) return text ?? fallback;
    problem?.(`${name} must be one of ${choices.join(", ")}, not “${text.slice(0, 40)}”: ${fallback} is shown.`);
    return fallback;
  },
  // The address of this view, for a link.
  href(values = {}) {
    const parameters = current();
    for (const [name, value] of Object.entries(values)) {
      if (value === null) parameters.delete(name);
      else parameters.set(name, value);
    }
    return address(parameters);
  },
};
