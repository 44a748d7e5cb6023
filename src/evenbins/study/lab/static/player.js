// Playing a list of steps: start, back, play or pause, step, end, a bar to scrub and a speed.
//
//   const play = player({ onShow: (at, forward) => draw(at), speeds: [[2, "2 a second"], [10, "10 a second"]], speed: 2 });
//   play.load(120, 0);      // so many steps; where to stand
//   play.run(80);           // play up to here (the end, if nothing is said); at once where motion is reduced
//
// Steps are states, `at` counts those that have happened; what a state looks like is onShow's affair. Keys: the
// arrows on the bar, and space on whatever `shortcuts(element)` was called for.

import { h, s, uid } from "./dom.js";

const ICONS = {  // of 14 by 14
  first: "M1 1h2.4v12H1zM13 1v12L4.4 7z", back: "M11 1v12L2.4 7z", next: "M3 1v12l8.6 -6z",
  skip: "M1 2v10l6 -5zM7.5 2v10l6 -5z", last: "M10.6 1H13v12h-2.4zM1 1v12l8.6 -6z",
};

export function calmMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

// The style of the scenes is loaded by the pages that show any.
export function sceneStyle() {
  if (document.querySelector("link[data-scenes]")) return Promise.resolve();
  return new Promise((resolve) => {
    const link = h("link", { rel: "stylesheet", href: "/static/scenes.css", "data-scenes": true, onload: resolve, onerror: resolve });
    document.head.append(link);
  });
}

export function player({ onShow, speeds, speed, label = "Steps", onRest = null, jump = null }) {
  let length = 0;
  let at = 0;
  let until = 0;
  let timer = null;
  const id = uid("speed");
  const button = (icon, name, work) => h("button", { type: "button", class: "icon", "aria-label": name, title: name, onclick: work },
    s("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" }, s("path", { d: ICONS[icon] })));
  const first = button("first", "To the start", () => go(0));
  const back = button("back", "One step back", () => go(at - 1));
  const playing = h("button", { type: "button", class: "primary play", onclick: () => toggle() }, "Play");
  const next = button("next", "One step", () => go(at + 1));
  const skip = jump && button("skip", jump.name, () => go(jump.next(at)));
  const last = button("last", "To the end", () => go(length));
  const bar = h("input", { type: "range", min: 0, max: 0, step: 1, value: 0, "aria-label": label, class: "scrub" });
  const count = h("output", { class: "hint count" });
  const pace = h("select", { id, "aria-label": "Speed" }, speeds.map(([each, text]) => h("option", { value: each }, text)));
  pace.value = String(speed);
  const element = h("div", { class: "player", role: "group", "aria-label": label },
    h("div", { class: "buttons" }, first, back, playing, next, skip, last), bar, count, pace);

  function show(forward = false) {
    bar.value = String(at);
    bar.style.setProperty("--share", `${length ? (100 * at) / length : 0}%`);
    bar.setAttribute("aria-valuetext", `step ${at} of ${length}`);
    count.textContent = `${at} / ${length}`;
    first.disabled = back.disabled = at === 0;
    next.disabled = last.disabled = at === length;
    if (skip) skip.disabled = at === length;
    playing.textContent = timer === null ? "Play" : "Pause";
    onShow(at, forward);
  }

  function go(where, { rest = true } = {}) {
    pause(false);
    const before = at;
    at = Math.min(length, Math.max(0, where));
    show(at === before + 1);
    if (rest) onRest?.(at);
  }

  function pause(tell = true) {
    if (timer === null) return;
    clearTimeout(timer);
    timer = null;
    playing.textContent = "Play";
    if (tell) onRest?.(at);
  }

  function tick() {
    const many = Math.max(1, Math.round(Number(pace.value) / 30));  // no more than thirty pictures a second
    const before = at;
    at = Math.min(until, at + many);
    const ended = at >= until;
    timer = ended ? null : setTimeout(tick, (1000 * (at - before)) / Number(pace.value));
    show(at === before + 1);
    if (ended) onRest?.(at);
  }

  function run(end = length) {
    pause(false);
    until = Math.min(end, length);
    if (at >= until) { show(); onRest?.(at); return; }
    if (calmMotion()) { go(until); return; }
    timer = setTimeout(tick, 60);
    playing.textContent = "Pause";
  }

  function toggle() {
    if (timer !== null) { pause(); return; }
    if (at >= length) at = 0;
    until = length;
    if (at >= until) { show(); return; }
    timer = setTimeout(tick, 0);
    playing.textContent = "Pause";
  }

  bar.addEventListener("input", () => go(Number(bar.value)));

  return {
    element, run, pause, toggle,
    go: (where) => go(where),
    load(steps, where) {
      pause(false);
      length = steps;
      bar.max = String(steps);
      at = Math.min(length, Math.max(0, where));
      show();
    },
    shortcuts(area) {
      area.addEventListener("keydown", (event) => {
        if (event.target !== area || event.ctrlKey || event.metaKey || event.altKey) return;
        const work = { " ": toggle, ArrowRight: () => go(at + 1), ArrowLeft: () => go(at - 1), Home: () => go(0), End: () => go(length) }[event.key];
        if (!work) return;
        event.preventDefault();
        work();
      });
    },
    end() { clearTimeout(timer); timer = null; },
    get at() { return at; },
    get length() { return length; },
    get running() { return timer !== null; },
  };
}
