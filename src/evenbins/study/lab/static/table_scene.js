// A small table as a picture: levels as rows of buckets, slots inside, the overflow list below; arrows for what an
// insertion looks at and for its one move.
//
//   const scene = tableScene();
//   scene.load(story);          // the answer of tables/story
//   scene.length                // events of all operations, one after the other
//   scene.show(at, { alive })   // the state after `at` events, and what the operation under way has looked at
//
// The story comes from the structure's twin; nothing is decided here. Events: see lab/table_story.py.

import { h, replace, s } from "./dom.js";

export function tableScene() {
  const arrows = s("svg", { class: "arrows", "aria-hidden": "true" });
  const rows = h("div", { class: "levels" });
  let story = null;
  let frames = [];  // [operation, event] of each event
  let cells = [];
  let buckets = [];
  let list = null;
  let last = [0, {}];

  function load(found) {
    story = found;
    frames = story.operations.flatMap((each, i) => each.events.map((_, j) => [i, j]));
    cells = [];
    buckets = [];
    const levels = story.buckets.map((many, level) => {
      const made = Array.from({ length: many }, () => {
        const inside = Array.from({ length: story.slots }, () => h("span", { class: "cell" }));
        cells.push(...inside);
        const bucket = h("div", { class: "bucket" }, inside);
        buckets.push(bucket);
        return bucket;
      });
      return h("div", { class: "level" }, h("div", { class: "name" }, h("b", {}, `Level ${level + 1}`), ` ${many} buckets`), h("div", { class: "buckets" }, made));
    });
    list = h("div", { class: "buckets", "data-value": "list" });
    replace(rows, levels, h("div", { class: "level listrow" }, h("div", { class: "name" }, h("b", {}, "Overflow list"), " the oldest first"), list), arrows);
  }

  // The state after `at` events: keys of slots, keys of the list.
  function after(at) {
    const slots = new Array(cells.length).fill(0);
    let waiting = [];
    let retried = 0;
    for (const [i, j] of frames.slice(0, at)) {
      const { key, events } = story.operations[i];
      const [what, first, second] = events[j];
      if (what === "put") slots[first] = key;
      else if (what === "move") { slots[second] = slots[first]; slots[first] = 0; }
      else if (what === "list") waiting.push(key);
      else if (what === "take") slots[first] = 0;
      else if (what === "unlist") waiting = waiting.filter((each) => each !== key);
      else if (what === "retry") retried = first;
      else if (what === "back") { slots[first] = retried; waiting = waiting.filter((each) => each !== retried); }
      else if (what === "stay") waiting.push(waiting.shift());
    }
    return { slots, waiting };
  }

  function place(element) {
    const frame = rows.getBoundingClientRect();
    const box = element.getBoundingClientRect();
    return [box.left - frame.left + box.width / 2, box.top - frame.top + box.height / 2];
  }

  function arrow(from, to, kind, alive) {
    const [ax, ay] = place(from);
    const [bx, by] = place(to);
    const length = Math.hypot(bx - ax, by - ay) || 1;
    const bow = Math.min(40, length / 5);
    const [mx, my] = [(ax + bx) / 2 + (bow * (ay - by)) / length, (ay + by) / 2 + (bow * (bx - ax)) / length];
    const turn = Math.atan2(by - my, bx - mx);
    const short = kind === "move" ? 14 : kind === "trial" ? 10 : 0;  // ends beside the cell, not on its number
    const [ex, ey] = [bx - short * Math.cos(turn), by - short * Math.sin(turn)];
    const path = s("path", { class: kind + (alive ? " alive" : ""), d: `M${ax} ${ay}Q${mx} ${my} ${ex} ${ey}`, pathLength: alive ? 1 : null });
    if (kind !== "move") return [path];
    const corner = (side) => `${ex - 9 * Math.cos(turn + side)} ${ey - 9 * Math.sin(turn + side)}`;
    const tip = `${ex + 3 * Math.cos(turn)} ${ey + 3 * Math.sin(turn)}`;
    return [path, s("path", { class: "head", d: `M${tip}L${corner(0.5)}L${corner(-0.5)}Z` })];
  }

  function show(at, { alive = false } = {}) {
    if (!story) return;
    last = [at, { alive: false }];
    const { slots, waiting } = after(at);
    cells.forEach((cell, i) => {
      const text = slots[i] ? String(slots[i]) : "";
      if (cell.textContent !== text) cell.textContent = text;
      cell.className = slots[i] ? "cell used" : "cell";
    });
    for (const bucket of buckets) bucket.className = "bucket";
    replace(list, waiting.map((key) => h("span", { class: "cell listed" }, key)), waiting.length ? null : h("span", { class: "hint" }, "empty"));
    const drawn = [];
    if (at > 0) {
      const [operation, until] = frames[at - 1];
      const { events } = story.operations[operation];
      let before = null;
      events.slice(0, until + 1).forEach(([what, first, second], j) => {
        const now = alive && j === until;
        if (what === "retry") { before = null; for (const bucket of buckets) bucket.className = "bucket"; drawn.length = 0; }
        if (what === "look") {
          buckets[first].classList.add("looked");
          if (second >= story.slots) buckets[first].classList.add("full");
          if (before !== null) drawn.push(...arrow(before, buckets[first], "probe", now));
          before = buckets[first];
        } else if (what === "there" && j === until) {
          buckets[second].classList.add("asked");
          drawn.push(...arrow(cells[first], buckets[second], "trial", now));
        } else if (what === "move") {
          cells[second].classList.add("moved");
          drawn.push(...arrow(cells[first], cells[second], "move", now));
        } else if (what === "put" || what === "back") {
          cells[first].classList.add("landed");
        } else if (what === "list" || what === "stay") {
          list.lastElementChild?.classList.add("landed");
        } else if (what === "take") cells[first].classList.add("gone");
      });
    }
    replace(arrows, drawn);
  }

  const level = (bucket) => {
    let left = bucket;
    for (let i = 0; i < story.buckets.length; i += 1) {
      if (left < story.buckets[i]) return [i + 1, left + 1];
      left -= story.buckets[i];
    }
    return [0, 0];
  };
  const named = (bucket) => { const [row, column] = level(bucket); return `bucket ${column} of level ${row}`; };
  const held = (load) => (load >= story.slots ? "full" : story.slots === 1 ? "free" : `${load} of ${story.slots} taken`);

  // The event before `at` in words.
  function words(at) {
    if (!story || at === 0) return "The table is empty. Step, or play.";
    const [i, j] = frames[at - 1];
    const { key, op, events } = story.operations[i];
    const [what, first, second, third] = events[j];
    const slots = what === "there" || what === "move" ? after(at).slots : null;
    const retries = events.slice(0, j).findLast((each) => each[0] === "retry");
    const who = retries ? `Key ${retries[1]}` : `Key ${key}`;
    switch (what) {
      case "look": return `${who} looks at its ${named(first)}: ${held(second)}.`;
      case "there": return `Key ${slots[first]}, which lives there, could move to its ${named(second)}: ${held(third)}.`;
      case "move": return `The one move: key ${slots[second]} goes to ${named(Math.floor(second / story.slots))} and makes room for ${retries ? `key ${retries[1]}` : `key ${key}`}.`;
      case "put": return `Key ${key} lands in ${named(Math.floor(first / story.slots))}.`;
      case "list": return `All of its buckets are full and nobody can make room: key ${key} goes to the overflow list.`;
      case "take": return `Key ${key} is deleted from ${named(Math.floor(first / story.slots))}; the next key to come may use the slot.`;
      case "unlist": return `Key ${key} is deleted from the overflow list.`;
      case "retry": return `Every eighth deletion tries the list's oldest key again: key ${first}.`;
      case "back": return `${who} leaves the list for ${named(Math.floor(first / story.slots))}.`;
      case "stay": return `${who} finds no room and becomes the youngest of the list.`;
      default: return op;
    }
  }

  // The counts after the last whole operation, and how many operations that are.
  function counts(at) {
    if (at === 0) return [0, null];
    const [i, j] = frames[at - 1];
    const whole = j === story.operations[i].events.length - 1 ? i + 1 : i;
    return [whole, whole ? story.operations[whole - 1].counts : null];
  }

  const observer = new ResizeObserver(() => show(...last));
  observer.observe(rows);

  return {
    element: rows, load, show, words, counts,
    get length() { return frames.length; },
    // Where the operation after `at` ends.
    next(at) {
      if (at >= frames.length) return frames.length;
      const [i] = frames[at];
      let end = at;
      while (end < frames.length && frames[end][0] === i) end += 1;
      return end;
    },
    // Where the first event of a kind comes, or -1.
    find(what) { return frames.findIndex(([i, j]) => story.operations[i].events[j][0] === what) + 1; },
    last(what) { return frames.findLastIndex(([i, j]) => story.operations[i].events[j][0] === what) + 1; },
    // What is under way: ["insert", 14].
    doing(at) {
      if (at === 0) return null;
      const { op, key } = story.operations[frames[at - 1][0]];
      return [op, key];
    },
    end() { observer.disconnect(); },
  };
}
