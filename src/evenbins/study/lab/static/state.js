// The view is the address: get and set parameters of the query string.
//
//   state.get("keys", "1e7")                    what the address says, or the default
//   state.set({ keys: "1e6", policy: null })    null removes; the entry of the history is replaced
//   state.set({ id: "kanizo-fig5" }, { push: true })    a step that the back button undoes
//
// `number` and `choice` read what a page needs and say what is wrong with the address: a view that cannot be shown
// must not silently be another one.
//
// Sliders move fast and browsers count the calls, so replacing waits a moment; `flush` does it now.

import { parse, plain } from "./format.js";

let pending = new Map();
let timer = null;

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

export const state = {
  get(name, fallback = null) {
    return current().get(name) ?? fallback;
  },
  set(values, { push = false } = {}) {
    for (const [name, value] of Object.entries(values)) {
      pending.set(name, value === null || value === undefined ? null : String(value));
    }
    if (push) {
      const next = address(current());
      pending.clear();
      clearTimeout(timer);
      if (next !== location.pathname + location.search) history.pushState(null, "", next);
      return;
    }
    clearTimeout(timer);
    timer = setTimeout(() => state.flush(), 150);
  },
  flush() {
    clearTimeout(timer);
    if (pending.size === 0) return;
    const next = address(current());
    pending.clear();
    history.replaceState(null, "", next);
  },
  // The browser went back or forward: the address is right, what was pending is not.
  discard() {
    clearTimeout(timer);
    pending = new Map();
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
