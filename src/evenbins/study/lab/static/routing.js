// The page Routing: conversations drawn at random, replayed through LLM replicas that cache prefixes, once for each
// policy: what is found in the caches, and how long the first token takes.
//
// A change starts the replay anew (routing/replay, a job: seconds); a replay that is under way is cancelled.

import { only } from "./api.js";
import { calm, card, copyBox, dataTable, facts, progress, segmented, slider } from "./controls.js";
import { h, replace, s } from "./dom.js";
import { count, number, percent } from "./format.js";

const DEFAULTS = { requests: 1500, per_second: 4, turns: 3, shared: 1, replicas: 8, cache_blocks: 1000, epsilon: 0.25, policies: "main", seed: 1 };
const ABOUT = {
  global: "one cache of the same total size: the most there is to find", "round-robin": "in turn", "least-work": "the replica with the least waiting work",
  hash: "first two blocks, bounded by requests", prefix: "deepest known prefix, bounded by waiting work", score: "least waiting work plus own missing prefill",
  "hash-1": "first block, bounded by requests", "hash-work": "first two blocks, bounded by waiting work", "prefix-requests": "deepest known prefix, bounded by requests",
  "prefix-spread": "prefix, idle replicas in turn", "score-spread": "score, idle replicas in turn", session: "first two blocks, no bound",
  envoy: "first two blocks, Envoy's bound", haproxy: "first two blocks, HAProxy's bound", kubeai: "first two blocks, KubeAI's bound",
  sglang: "SGLang's cache-aware policy", "sglang-4": "SGLang's, with a threshold of 4 requests", "production-stack": "vLLM production-stack's prefixaware", "llm-d": "llm-d's prefix and queue scores",
};

// A bar beside a number, drawn as SVG: styles stand in the style sheet alone.
function bar(value, most) {
  const share = most > 0 ? Math.min(1, value / most) : 0;
  return s("svg", { class: "share", viewBox: "0 0 100 10", width: 100, height: 10, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { x: 0, y: 0, width: 100 * share, height: 10, rx: 1 }));
}

export default {
  title: "Routing",
  mount(root, { state, api, notify }) {
    const problems = [];
    const problem = (text) => problems.push(text);
    const read = (name, min, max, whole = false) => state.number(name, DEFAULTS[name], { min, max, whole, problem });
    const values = {
      requests: read("requests", 10, 10_000, true), per_second: read("per_second", 0.1, 100), turns: read("turns", 1, 50),
      shared: read("shared", 0, 50, true), replicas: read("replicas", 1, 64, true), cache_blocks: read("cache_blocks", 1, 1e5, true),
      epsilon: read("epsilon", 0, 10), policies: state.choice("policies", DEFAULTS.policies, ["main", "all", "peers"], { problem }),
      seed: read("seed", 0, 2 ** 32 - 1, true),
    };
    const set = (name) => (value) => {
      values[name] = value;
      state.set({ [name]: value === DEFAULTS[name] ? null : value });
      soon();
    };

    // --- controls ---------------------------------------------------------------------------------------
    const linear = (name, label, min, max, options = {}) => slider({ label, min, max, value: values[name], onChange: set(name), ...options }).element;
    const log = (name, label, min, max, options = {}) => linear(name, label, min, max, { scale: "log", ...options });
    const group = segmented({ label: "Policies", choices: [["main", "the main six"], ["all", "all of evenbins"], ["peers", "other routers"]], value: values.policies, onChange: set("policies") });
    const controls = h("form", { class: "controls", "aria-label": "The replay", onsubmit: (event) => event.preventDefault() },
      linear("replicas", "Replicas", 1, 64, { whole: true }),
      log("cache_blocks", "Blocks in a cache", 10, 1e5, { least: 1, whole: true, format: count, help: "A block is 512 tokens." }),
      group.element,
      log("per_second", "Requests per second", 0.1, 100),
      log("requests", "Requests", 100, 10_000, { least: 10, whole: true, format: count }),
      linear("turns", "Requests of a conversation", 1, 20, { most: 50, step: 0.5, help: "On average; each begins with all that was said before." }),
      linear("shared", "Blocks that all prompts begin with", 0, 10, { most: 50, whole: true }),
      linear("epsilon", "How far a load may exceed the mean", 0, 2, { most: 10, step: 0.05 }));

    // --- results ----------------------------------------------------------------------------------------
    const working = progress({ label: "The replay", onCancel: () => running.abort() });
    const again = h("button", { type: "button", onclick: () => { set("seed")((values.seed + 1) % 2 ** 32); } }, "Other conversations");
    const box = h("div", { class: "stack tight" }, h("p", { class: "hint" }, "Replaying …"));
    const command = copyBox({ label: "command" });
    const python = copyBox({ label: "Python" });
    root.append(
      h("h1", {}, "Routing"),
      h("p", { class: "lede" }, "Which replica of a language model should get a request? One that still has the beginning of its prompt computes only the rest, if it is not too busy. Conversations drawn at random, by every policy."),
      h("div", { class: "split" }, controls,
        h("div", { class: "stack" },
          h("section", { class: "card" }, h("div", { class: "row between" }, h("h2", {}, "Found in the caches, and time to first token"), again), working.element, box),
          card("Take it with you", python.element, command.element,
            h("p", { class: "hint" }, "The command replays a trace of your own: JSON lines with timestamp, input_length, output_length and hash_ids.")))));

    const show = (found) => {
      const slowest = Math.max(...found.rows.slice(0, 6).map((row) => row.ttft_mean ?? 0));  // others may be far beyond
      replace(box,
        facts([
          ["requests", count(found.requests), `in ${number(found.minutes, 2)} minutes`],
          ["blocks", count(found.blocks), `longest prompt ${count(found.longest)} tokens`],
        ]),
        dataTable({
          caption: "Hit: fraction of all blocks found in the cache. TTFT: time to first token. Max load: prefill work of the busiest replica over the mean.",
          rows: found.rows,
          columns: [
            { label: "policy", align: "left", cell: (row) => h("span", { title: ABOUT[row.policy] }, row.policy) },
            { label: "hit", cell: (row) => h("span", { "data-value": `${row.policy}-hit` }, percent(row.hit)) },
            { label: "", cell: (row) => bar(row.hit, found.rows[0].hit) },
            { label: "mean TTFT", cell: (row) => h("span", { "data-value": `${row.policy}-ttft` }, row.ttft_mean === null ? "–" : `${number(row.ttft_mean)} s`) },
            { label: "", cell: (row) => (row.ttft_mean === null ? "" : bar(row.ttft_mean, slowest)) },
            { label: "p99 TTFT", cell: (row) => (row.ttft_p99 === null ? "–" : `${number(row.ttft_p99)} s`) },
            { label: "max load", cell: (row) => number(row.max_load) },
          ],
        }));
      command.set(found.command);
      python.set(found.python.trimEnd());
    };

    // --- the job ----------------------------------------------------------------------------------------
    const running = only();
    const stop = running.abort;
    running.abort = () => { stop(); working.end(); box.classList.remove("stale"); };
    const run = () => running(async (signal) => {
      working.start("replaying …");
      box.classList.add("stale");
      try {
        const found = await api.job("routing/replay", values, { signal, onProgress: working.show });
        if (signal.aborted) return;
        if (!problems.length) notify(null);
        problems.length = 0;
        show(found);
      } finally {
        if (!signal.aborted) { working.end(); box.classList.remove("stale"); }
      }
    }).catch(notify);
    const soon = calm(run, 250);
    if (problems.length) notify(problems.join(" "));
    run();
    return () => { soon.cancel(); running.abort(); };
  },
};
