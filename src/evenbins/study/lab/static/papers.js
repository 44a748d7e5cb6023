// The page Papers: the experiments on the left; on the right the chosen one, run again: the paper's numbers beside
// ours, differences marked, the figure, the notes.
//
// Choosing an experiment runs it quickly (most take less than a second); a full run waits for the button.

import { only } from "./api.js";
import { card, copyBox, dataTable, facts, progress, segmented } from "./controls.js";
import { h, replace, uid } from "./dom.js";
import { number, parse, percent } from "./format.js";

const FIRST = "kanizo-fig6";
const FEW = 30;
const MARKS = { close: ["good", "●", "within 2 % of the paper"], near: ["warn", "◐", "within 10 % of the paper"], apart: ["bad", "○", "further from the paper; a note says why, where that is known"] };

export default {
  title: "Papers",
  mount(root, { state, api, notify }) {
    const problems = [];
    const problem = (text) => problems.push(text);
    const view = {
      id: state.get("id") ?? FIRST,
      seed: state.number("seed", 1, { min: 0, max: 2 ** 32 - 1, whole: true, problem }),
      quick: state.choice("run", "quick", ["quick", "full"], { problem }) === "quick",
    };
    let known = null;   // what the server lists
    let result = null;
    let all = false;    // show every row
    let printed = false;  // only rows with a number of the paper

    // --- the list ---------------------------------------------------------------------------------------
    const search = h("input", { type: "search", id: uid("search"), placeholder: "table, figure or words", autocomplete: "off", spellcheck: "false" });
    const list = h("div", { class: "experiments", id: "experiments", tabindex: -1 }, h("p", { class: "hint" }, "Reading …"));
    search.addEventListener("input", () => { state.set({ q: search.value || null }, { step: false }); showList(); });
    search.value = state.get("q", "");
    const showList = () => {
      if (!known) return;
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fits = (paper, each) => words.every((word) => `${paper.title} ${each.id} ${each.source} ${each.title}`.toLowerCase().includes(word));
      const groups = known.papers.map((paper) => [paper, paper.experiments.filter((each) => fits(paper, each))]).filter(([, some]) => some.length);
      replace(list, groups.length ? groups.map(([paper, some]) => h("section", {},
        h("h3", {}, paper.title),
        h("ul", {}, some.map((each) => h("li", {}, h("a", {
          href: `/papers?id=${encodeURIComponent(each.id)}`, "aria-current": each.id === view.id ? "true" : null,
          onclick: (event) => { if (!event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); choose(each.id); } },
        }, h("b", {}, each.source), h("span", {}, each.title)))))))
        : h("p", { class: "hint" }, "No experiment has these words."));
    };
    const showCurrent = () => {
      const current = list.querySelector("[aria-current]");
      if (current) list.scrollTop = current.offsetTop - list.offsetTop - list.clientHeight / 3;
    };

    // --- the chosen one ---------------------------------------------------------------------------------
    const heading = h("h2", {}, "…");
    const source = h("p", { class: "hint" });
    const mode = segmented({
      label: "How much", hideLabel: true, choices: [["quick", "quick look"], ["full", "full run"]], value: view.quick ? "quick" : "full",
      onChange: (value) => { view.quick = value === "quick"; remember(); },
    });
    const seed = h("input", { class: "box", type: "text", inputmode: "numeric", id: uid("seed"), value: view.seed, autocomplete: "off" });
    const seedProblem = h("p", { class: "problem", role: "alert", hidden: true });
    const readSeed = () => {
      const value = parse(seed.value);
      const fine = Number.isInteger(value) && value >= 0 && value < 2 ** 32;
      seedProblem.hidden = fine;
      seedProblem.textContent = fine ? "" : `seed must be a whole number from 0 to ${2 ** 32 - 1}, not “${seed.value.slice(0, 30)}”.`;
      seed.toggleAttribute("aria-invalid", !fine);
      if (fine) { view.seed = value; remember(); }
      return fine;
    };
    seed.addEventListener("change", readSeed);
    const go = h("button", { type: "submit", class: "primary" }, "Run");
    const bar = progress({ label: "The run", onCancel: () => running.abort() });
    const box = h("div", { class: "stack" });
    const command = copyBox({ label: "command" });
    const python = copyBox({ label: "Python" });
    const remember = () => state.set({ id: view.id, seed: view.seed === 1 ? null : view.seed, run: view.quick ? null : "full" });

    const running = only();
    const stop = running.abort;
    running.abort = () => { stop(); bar.end(); go.disabled = false; };
    const run = () => running(async (signal) => {
      go.disabled = true;
      bar.start("running …");
      box.classList.add("stale");
      const { id, seed: number_, quick } = view;
      try {
        const found = api.job("papers/run", { id, seed: number_, quick: quick ? 1 : 0 }, { signal, onProgress: bar.show });
        [result] = await Promise.all([found, listed]);
        if (signal.aborted) return;
        if (!problems.length) notify(null);
        problems.length = 0;
        all = false;
        printed = result.compared > 0 && result.rows.length > FEW;
        show();
      } catch (error) {
        if (!signal.aborted) replace(box, h("p", { class: "problem" }, error.message));
        throw error;
      } finally {
        if (!signal.aborted) { bar.end(); go.disabled = false; box.classList.remove("stale"); }
      }
    }).catch(notify);

    const find = (id) => known.papers.flatMap((paper) => paper.experiments.map((each) => ({ ...each, paper: paper.title }))).find((each) => each.id === id);
    const present = ({ started = false } = {}) => {
      const about = find(view.id);
      if (!started || !about) {
        running.abort();
        replace(box);
        result = null;
      }
      if (!about) {
        heading.textContent = "No such experiment";
        source.textContent = "";
        go.disabled = true;
        notify(`There is no experiment “${view.id.slice(0, 40)}”: choose one from the list.`);
        return;
      }
      if (!started) go.disabled = false;
      heading.textContent = about.title;
      replace(source, `${about.paper}, ${about.source} · `, h("code", {}, about.id),
        about.options.length ? ` · takes a ${about.options.join(", ")} on the command line only` : "");
      if (started) return;
      if (view.quick) run();
      else replace(box, h("p", { class: "hint" }, "A full run takes seconds to minutes: press Run."));
    };
    const choose = (id) => {
      notify(null);
      view.id = id;
      state.set({ id }, { now: true });
      for (const link of list.querySelectorAll("a")) {
        if (link.getAttribute("href") === `/papers?id=${encodeURIComponent(id)}`) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
      present();
      if (matchMedia("(max-width: 860px)").matches) heading.scrollIntoView({ block: "start" });
    };

    const show = () => {
      const notes = [...new Set(result.rows.map((row) => row.note).filter(Boolean))];
      const some = printed ? result.rows.filter((row) => row.paper !== null) : result.rows;
      const rows = all ? some : some.slice(0, FEW);
      const parameters = new URLSearchParams({ id: result.experiment.id, seed: result.seed, quick: result.quick ? 1 : 0 });
      command.set(result.command);
      python.set(result.python.trimEnd());
      replace(box,
        facts([
          ["numbers", String(result.rows.length), result.quick ? "quick look" : "full run"],
          ["printed in the paper", result.compared ? String(result.compared) : "none", result.compared ? "" : "the paper draws them without numbers"],
          ...(result.compared ? [["within 10 %", `${result.near} of ${result.compared}`]] : []),
          ...(result.median === null ? [] : [["median difference", percent(result.median, 2)]]),
          ["took", `${number(result.seconds, 2)} s`],
        ]),
        known.figures
          ? h("figure", { class: "paperfigure" }, h("img", { src: `/api/papers/figure?${parameters}`, alt: `Figure: ${result.experiment.title}`, width: 1152, height: 720,
            onload: (event) => event.target.parentElement.classList.add("drawn"),
            onerror: () => notify("The figure could not be drawn: run the experiment again, and see the lab's terminal.") }))
          : h("p", { class: "hint" }, "Figures need matplotlib: ", h("code", {}, known.install)),
        h("div", { class: "stack tight" },
          h("div", { class: "row between" },
            result.compared > 0 && h("div", { class: "row marks" }, Object.values(MARKS).map(([tone, sign, text]) => h("span", { class: "hint" }, h("span", { class: tone }, `${sign} `), text))),
            result.compared > 0 && result.compared < result.rows.length && h("button", { type: "button", class: "small", "aria-pressed": String(printed), onclick: () => { printed = !printed; show(); } },
              printed ? "All rows" : "Only the paper's")),
          dataTable({
            caption: "The paper's numbers beside ours; ±: sd, the standard deviation of one trial.",
            rows,
            columns: [
              ...(matchMedia("(max-width: 560px)").matches ? [{ label: "what and where", align: "left", cell: inOne }] : [
                ...result.columns.map((name) => ({ label: name.replaceAll("_", " "), align: "left", cell: (row) => value(row.where[name]) })),
                { label: "quantity", align: "left", cell: (row) => row.quantity },
              ]),
              ...(result.compared ? [{ label: "paper", cell: (row) => (row.paper === null ? "" : number(row.paper, 6)) }] : []),
              { label: "ours", cell: (row) => [number(row.ours, 4), row.sd !== null && h("span", { class: "hint" }, ` ± ${number(row.sd, 2)}`)] },
              ...(result.compared ? [{ label: "difference", cell: difference }] : []),
              ...(notes.length ? [{ label: "note", align: "left", cell: (row) => (row.note ? h("a", { href: `#note-${notes.indexOf(row.note) + 1}` }, `(${notes.indexOf(row.note) + 1})`) : "") }] : []),
            ],
          }),
          rows.length < some.length && h("div", {}, h("button", { type: "button", class: "small", onclick: () => { all = true; show(); } }, `Show all ${some.length} rows`)),
          notes.length > 0 && h("ol", { class: "notes" }, notes.map((note, index) => h("li", { id: `note-${index + 1}` }, note)))),
        command.element, python.element);
    };

    root.append(
      h("h1", {}, "Papers"),
      h("p", { class: "lede" }, "Every table and figure of the three papers, run again on this machine: their numbers beside ours, and what is different."),
      h("div", { class: "split listed" },
        h("div", { class: "controls listing" }, h("div", { class: "field" }, h("label", { for: search.id }, "Find"), search), list),
        h("section", { class: "card" },
          h("div", {}, heading, source, h("p", { class: "narrow" }, h("a", { href: "#experiments" }, "Choose another table or figure"))),
          h("form", { class: "row", "aria-label": "The run", onsubmit: (event) => { event.preventDefault(); if (readSeed()) run(); } },
            mode.element, h("span", { class: "row" }, h("label", { for: seed.id }, "seed"), seed), go),
          seedProblem, bar.element, box)));

    const listing = new AbortController();
    const listed = api.get("papers/list", {}, { signal: listing.signal }).then((found) => {
      known = found;
      showList();
      showCurrent();
      present({ started: view.quick });
      if (problems.length) notify(problems.join(" "));
    });
    if (view.quick) run();  // beside the list, not after it
    listed.catch(notify);
    return () => { listing.abort(); running.abort(); };
  },
};

// Sign and size as `evenbins reproduce` says them, with the mark of the agreement.
function difference(row) {
  if (!row.agreement) return "";
  const [tone, sign, meaning] = MARKS[row.agreement];
  const factor = /^× (.*)$/.exec(row.difference);
  const text = factor ? `× ${number(Number(factor[1]))}` : row.difference.replace(/^[+-]0\.0 %$/, "0 %").replace("-", "−");
  const scatter = row.agreement !== "close" && row.sd ? h("span", { class: "hint block" }, `${number(Math.abs(row.ours - row.paper) / row.sd, 2)} sd`) : "";
  return h("span", { class: tone, title: meaning }, `${text} ${sign}`, scatter);
}

// Quantity and point in one cell, for a phone.
function inOne(row) {
  const where = Object.entries(row.where).map(([name, each]) => (typeof each === "string" ? each : `${name.replaceAll("_", " ")} ${value(each)}`));
  return [row.quantity, h("span", { class: "hint block" }, where.join(", "))];
}

function value(each) {
  if (each === undefined || each === null) return "";
  return typeof each === "number" ? number(each, 5) : String(each);
}
