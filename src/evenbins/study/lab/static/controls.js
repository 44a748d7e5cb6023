// Controls: each gives { element, value, set(value) } and calls onChange(value) when the user changed it.
//
//   slider({ label: "Keys", scale: "log", min: 1e3, max: 1e12, value: 1e7, digits: 2, format: count, onChange })
//   slider({ label: "Block", scale: "choice", choices: [[256, "256 bits"], [512, "512 bits"]], value: 512, onChange })
//   segmented({ label: "Goal", choices: [["fpr", "FPR"], ["bits", "Bits per key"]], value: "fpr", onChange })
//   toggle({ label: "Deletions", value: false, onChange })
//   progress({ onCancel })      dataTable({ columns, rows })      copyBox({ label, text })
//
// A slider has a number box beside it: the box takes any number from `least` to `most` (by default the slider's range),
// the slider rounds to its steps.
// What cannot be is said below the box and changes nothing.

import { h, replace, uid } from "./dom.js";
import { number, parse, plain } from "./format.js";

const STEPS = 400;

export function slider({
  label, min = 0, max = 1, least = min, most = max, step = null, value, scale = "linear", choices = null, unit = "", digits = 2,
  whole = false, format = null, help = "", onChange,
}) {
  const id = uid("slider");
  const options = scale === "choice" ? choices.map((each) => (Array.isArray(each) ? each : [each, String(each)])) : null;
  const range = h("input", {
    type: "range", id, min: 0, max: options ? options.length - 1 : STEPS, step: 1,
    "aria-describedby": help ? `${id}-help` : null,
  });
  const box = options
    ? h("output", { class: "box", for: id })
    : h("input", {
      type: "text", class: "box", inputmode: "decimal", autocomplete: "off", spellcheck: "false",
      "aria-label": `${label}, as a number${unit ? ` (${unit})` : ""}`,
    });
  const hint = h("p", { class: "hint", id: `${id}-help` }, help);
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const element = h("div", { class: "field" },
    h("label", { for: id }, label, unit && h("span", { class: "unit" }, ` ${unit}`)), box, range, help && hint, problem);
  let now;

  const toPosition = (each) => {
    if (options) return Math.max(0, options.findIndex(([key]) => String(key) === String(each)));
    const share = scale === "log" ? Math.log(each / min) / Math.log(max / min) : (each - min) / (max - min);
    return Math.round(STEPS * Math.min(1, Math.max(0, share)));
  };
  const fromPosition = (position) => {
    if (options) return options[position][0];
    if (position <= 0) return min;
    if (position >= STEPS) return max;
    let found = scale === "log" ? min * (max / min) ** (position / STEPS) : min + (max - min) * (position / STEPS);
    if (step) found = Math.round(found / step) * step;
    found = Number(found.toPrecision(scale === "log" ? digits : 6));
    return whole ? Math.round(found) : found;
  };
  const show = () => {
    range.value = String(toPosition(now));
    const share = toPosition(now) / (options ? Math.max(1, options.length - 1) : STEPS);
    range.style.setProperty("--share", `${100 * share}%`);
    const text = options ? options[toPosition(now)][1] : (format ?? number)(now);
    range.setAttribute("aria-valuetext", `${text}${unit ? ` ${unit}` : ""}`);
    if (options) box.textContent = text;
    else { box.value = plain(now); box.title = text; }
    problem.hidden = true;
    box.removeAttribute("aria-invalid");
  };
  const change = (next) => {
    if (next === now) { show(); return; }
    now = next;
    show();
    onChange?.(now);
  };

  range.addEventListener("input", () => change(fromPosition(Number(range.value))));
  if (!options) {
    const take = () => {
      const typed = parse(box.value);
      if (!(typed >= least && typed <= most) || (whole && !Number.isInteger(typed))) {
        problem.textContent = `${label} must be ${whole ? "a whole number" : "a number"} from ${plain(least)} to ${plain(most)}, not “${box.value.slice(0, 30)}”.`;
        problem.hidden = false;
        box.setAttribute("aria-invalid", "true");
        return;
      }
      change(typed);
    };
    box.addEventListener("change", take);
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter") take();
      if (event.key === "Escape") show();
    });
  }
  const set = (next) => { now = next; show(); };
  set(value);
  return {
    element, range, box, set,
    get value() { return now; },
    enable(yes) { range.disabled = !yes; if (!options) box.disabled = !yes; element.classList.toggle("off", !yes); },
  };
}

export function segmented({ label, choices, value, onChange, hideLabel = false }) {
  const name = uid("choice");
  const inputs = choices.map(([key, text]) => {
    const input = h("input", { type: "radio", name, value: key, id: uid("radio") });
    input.addEventListener("change", () => { if (input.checked) onChange?.(key); });
    return [key, input, h("label", { for: input.id }, text)];
  });
  const element = h("fieldset", { class: "segmented" },
    h("legend", { class: hideLabel ? "unseen" : null }, label),
    h("div", {}, inputs.map(([, input, text]) => [input, text])));
  const set = (next) => { for (const [key, input] of inputs) input.checked = String(key) === String(next); };
  set(value);
  return { element, set, get value() { return inputs.find(([, input]) => input.checked)?.[0]; } };
}

export function toggle({ label, value = false, help = "", onChange }) {
  const input = h("input", { type: "checkbox", role: "switch", id: uid("toggle") });
  input.checked = value;
  input.addEventListener("change", () => onChange?.(input.checked));
  const element = h("div", { class: "toggle" }, input, h("label", { for: input.id }, label, help && h("span", { class: "hint" }, ` ${help}`)));
  return { element, set(next) { input.checked = next; }, get value() { return input.checked; } };
}

export function select({ label, choices, value, onChange }) {
  const id = uid("select");
  const input = h("select", { id }, choices.map(([key, text]) => h("option", { value: key }, text)));
  input.value = value;
  input.addEventListener("change", () => onChange?.(input.value));
  const element = h("div", { class: "field" }, h("label", { for: id }, label), input);
  return { element, set(next) { input.value = next; }, get value() { return input.value; } };
}

// A bar for a job: start(text), show(done, total), end(). The button calls onCancel.
export function progress({ onCancel, label = "Progress" } = {}) {
  const bar = h("progress", { max: 1, "aria-label": label });
  const text = h("span", { class: "hint", role: "status" });
  const cancel = onCancel && h("button", { type: "button", class: "small", onclick: () => onCancel() }, "Cancel");
  const element = h("div", { class: "progress", hidden: true }, bar, text, cancel);
  return {
    element,
    start(words = "") { element.hidden = false; bar.removeAttribute("value"); text.textContent = words; },
    show(done, total) { bar.max = total || 1; bar.value = done; },
    end() { element.hidden = true; },
  };
}

// columns: [{ key, label, format, align: "left"|"right", title }]; rows: objects; mark(row) gives a class;
// onPick(row) makes rows choosable by click and Enter. A table scrolls inside its box.
export function dataTable({ columns, rows, caption = "", mark = null, onPick = null, chosen = null }) {
  const head = h("tr", {}, columns.map((each) =>
    h("th", { scope: "col", class: each.align === "left" ? "left" : null, title: each.title }, each.label)));
  const body = rows.map((row) => {
    const cells = columns.map((each, index) => {
      const value = each.cell ? each.cell(row) : (each.format ?? ((v) => v ?? "–"))(row[each.key], row);
      const pick = onPick && index === 0;
      return h(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, class: each.align === "left" ? "left" : null },
        pick ? h("button", { type: "button", class: "link", onclick: () => onPick(row) }, value) : value);
    });
    return h("tr", { class: mark?.(row), "aria-selected": chosen?.(row) ? "true" : null,
      onclick: onPick ? (event) => { if (!event.target.closest("button")) onPick(row); } : null }, cells);
  });
  const id = uid("caption");  // outside of the box, which scrolls
  return h("div", { class: "tabled" }, caption && h("p", { class: "hint", id }, caption),
    h("div", { class: "tablebox", tabindex: 0, role: "region", "aria-label": "Table" },
      h("table", { class: onPick ? "pick" : null, "aria-describedby": caption ? id : null }, h("thead", {}, head), h("tbody", {}, body))));
}

// A text to copy: the clipboard where there is one, otherwise the text is selected for Ctrl-C.
export function copyBox({ label, text = "" }) {
  const area = h("textarea", { readonly: true, spellcheck: "false", rows: 1, "aria-label": label });
  const button = h("button", { type: "button", class: "small" }, `Copy as ${label}`);
  const said = h("span", { class: "hint", role: "status" });
  const element = h("div", { class: "copy" }, h("div", { class: "copyhead" }, button, said), area);
  const set = (next) => { area.value = next; area.rows = Math.max(1, next.split("\n").length); };
  button.addEventListener("click", async () => {
    area.select();
    let done = false;
    try { await navigator.clipboard.writeText(area.value); done = true; } catch { done = false; }
    said.textContent = done ? "Copied." : "Selected: press Ctrl-C.";
    setTimeout(() => { said.textContent = ""; }, 4000);
  });
  set(text);
  return { element, set, area, button, get value() { return area.value; } };
}

export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), children);
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value, hint]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value, hint && h("span", { class: "hint" }, ` ${hint}`)))));
}

// Call a function when things have been calm for a moment.
export function calm(work, milliseconds = 120) {
  let timer = null;
  const later = (...values) => { clearTimeout(timer); timer = setTimeout(() => work(...values), milliseconds); };
  later.cancel = () => clearTimeout(timer);
  return later;
}

export { replace };
