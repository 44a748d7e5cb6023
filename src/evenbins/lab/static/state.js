// The view is the address: get and set parameters of the query string.
//
//   state.get("keys", "1e7")                    what the address says, or the default
//   state.set({ keys: "1e6", policy: null })    null removes; the entry of the history is replaced
//   state.set({ id: "kanizo-fig5" }, { push: true })    a step that the back button undoes
//
// Sliders move fast and browsers count the calls, so replacing waits a moment; `flush` does it now.

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
