// Charts in SVG, from plain data.
//
//   const chart = lineChart({ label: "FPR over bits per key", x: { label: "bits per key" }, y: { label: "FPR", log: true } });
//   root.append(chart.element);
//   chart.update({ series: [{ id: "blocked", name: "blocked", points: [[8, 0.02], [16, 4e-4]] }],
//                  marks: [{ x: 12, y: 0.003, label: "chosen" }] });
//   chart.end();
//
// lineChart: axes linear or log, a legend whose buttons hide and show series, a read-out under the pointer or, with
// the keyboard (arrows, Home, End, Escape), under the cursor. histogram: measured bars with the predicted outline.
// Both draw to the width they are given (ResizeObserver), so that text keeps its size on a phone.
//
// A series: { id, name, points: [[x, y]...], colour: 0..7, dash: 0..3, focus: true, band: [[x, low, high]...], dots: true }.
// marks: [{ x, y, label, below: true }]: the label stands above the mark, or below it.
// guides: [{ x } or { y }] are thin lines at what was asked for. Colour and dash follow from the place in the list if they are not given; colours are CSS variables --series-0..7
// (after Okabe and Ito, distinct for the colour-blind), dashes tell series apart without any colour.

import { h, replace, s, uid } from "./dom.js";
import { number, superscript } from "./format.js";

const DASHES = ["", "7 4", "2 3", "9 3 2 3"];

export function colour(index) {
  return `var(--series-${index % 8})`;
}

function finite(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// An axis: maps data to 0..1, and chooses ticks. Log axes leave out what is not positive.
function axis({ log = false, min, max, values, room, zero = false }) {
  const usable = values.filter((value) => finite(value) && (!log || value > 0));
  let low = min ?? Math.min(...usable);
  let high = max ?? Math.max(...usable);
  if (!finite(low) || !finite(high)) { low = log ? 1 : 0; high = log ? 10 : 1; }
  if (zero && !log) low = Math.min(0, low);
  if (log) {
    if (min === undefined) low = 10 ** Math.floor(Math.log10(low) + 1e-9);
    if (max === undefined) high = 10 ** Math.ceil(Math.log10(high) - 1e-9);
    if (low >= high) high = low * 10;
  } else if (low >= high) { high = low + (low === 0 ? 1 : Math.abs(low) * 0.1); }
  const ticks = log ? logTicks(low, high, room) : linearTicks(low, high, room);
  if (!log && max === undefined && ticks.length > 1) {
    const step = ticks[1] - ticks[0];
    high = Math.max(high, Math.ceil(high / step - 1e-9) * step);
    if (min === undefined && !zero) low = Math.min(low, Math.floor(low / step + 1e-9) * step);
    ticks.splice(0, ticks.length, ...linearTicks(low, high, room));
  }
  const place = log
    ? (value) => Math.log(value / low) / Math.log(high / low)
    : (value) => (value - low) / (high - low);
  const back = log ? (share) => low * (high / low) ** share : (share) => low + share * (high - low);
  return { place, back, ticks, low, high, log, inside: (value) => finite(value) && (!log || value > 0) };
}

function linearTicks(low, high, room) {
  const rough = (high - low) / Math.max(1, room);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((each) => each * power >= rough * 0.999) ?? 10);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + step * 1e-9; i += 1) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high, room) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const each = Math.max(1, Math.ceil((last - first) / Math.max(1, room)));
  const ticks = [];
  if (last - first < 2) {  // less than two decades: 1, 2, 5 as well
    for (let power = first - 1; power <= last; power += 1) {
      for (const digit of [1, 2, 5]) {
        const tick = Number((digit * 10 ** power).toPrecision(12));
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    }
    return ticks;
  }
  for (let power = first; power <= last; power += each) ticks.push(Number(`1e${power}`));
  return ticks;
}

function tickText(value, log) {
  if (log && (value >= 1e5 || value < 1e-2)) {
    const power = Math.floor(Math.log10(value) + 1e-9);
    const digit = Math.round(value / 10 ** power);
    return `${digit === 1 ? "" : `${digit}·`}10${superscript(power)}`;
  }
  return number(value, 6);
}

function observe(element, draw) {
  let width = 0;
  const observer = new ResizeObserver(() => {
    if (element.clientWidth !== width) { width = element.clientWidth; draw(); }
  });
  observer.observe(element);
  return () => observer.disconnect();
}

function frame(svg, { width, height, left, right, top, bottom, xAxis, yAxis, x, y }) {
  const across = width - left - right;
  const down = height - top - bottom;
  const toX = (value) => left + across * xAxis.place(value);
  const toY = (value) => top + down * (1 - yAxis.place(value));
  const grid = s("g", { class: "grid" });
  const texts = s("g", { class: "ticks" });
  const format = { x: x.format ?? ((v) => tickText(v, x.log)), y: y.format ?? ((v) => tickText(v, y.log)) };
  for (const tick of yAxis.ticks) {
    grid.append(s("line", { x1: left, x2: width - right, y1: toY(tick), y2: toY(tick) }));
    texts.append(s("text", { x: left - 8, y: toY(tick), dy: "0.32em", "text-anchor": "end" }, format.y(tick)));
  }
  for (const tick of xAxis.ticks) {
    grid.append(s("line", { x1: toX(tick), x2: toX(tick), y1: top, y2: height - bottom, class: "faint" }));
    texts.append(s("text", { x: toX(tick), y: height - bottom + 18, "text-anchor": "middle" }, format.x(tick)));
  }
  grid.append(s("line", { class: "base", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  texts.append(s("text", { class: "axis", x: left + across / 2, y: height - 4, "text-anchor": "middle" }, x.label ?? ""));
  texts.append(s("text", { class: "axis", x: 2, y: 12, "text-anchor": "start" }, y.label ?? ""));
  svg.append(grid, texts);
  return { toX, toY, across, down };
}

function leftMargin(yAxis, y) {
  const longest = Math.max(2, ...yAxis.ticks.map((tick) => (y.format?.(tick) ?? tickText(tick, y.log)).length));
  return 16 + 7 * Math.min(longest, 9);
}

// The box beside the cursor: lines of [swatch, name, value]; stays inside the chart.
function tooltip() {
  const element = h("div", { class: "tooltip", hidden: true, "aria-hidden": "true" });
  return {
    element,
    show(title, lines, left, top, width) {
      replace(element, h("strong", {}, title), lines.map(([swatch, name, value]) =>
        h("div", {}, h("i", { style: { background: swatch } }), h("span", {}, name), h("b", {}, value))));
      element.hidden = false;
      const own = element.offsetWidth;
      element.style.left = `${left + 14 + own > width ? Math.max(0, left - own - 14) : left + 14}px`;
      element.style.top = `${top}px`;
    },
    hide() { element.hidden = true; },
  };
}

export function lineChart(first = {}) {
  let options = { series: [], marks: [], x: {}, y: {}, height: 340, ...first };
  const hidden = new Set(first.hidden ?? []);
  const box = h("div", { class: "plot" });
  const legend = h("div", { class: "legend", role: "group", "aria-label": "Series: press to hide or show" });
  const status = h("p", { class: "unseen", role: "status" });
  const tip = tooltip();
  const element = h("figure", { class: "chart" }, box, legend, status);
  const clip = uid("clip");
  let geometry = null;
  let cursor = null;

  const visible = () => options.series.filter((each) => !hidden.has(each.id) && each.points.length > 0);
  const look = (each) => {
    const index = options.series.indexOf(each);
    return { stroke: colour(each.colour ?? index), dash: DASHES[(each.dash ?? (index >= 4 ? 1 : 0)) % DASHES.length] };
  };

  function draw() {
    const width = Math.max(240, box.clientWidth || 640);
    const height = width < 520 ? Math.min(options.height, 280) : options.height;
    const shown = visible();
    const marks = options.marks ?? [];
    const xs = shown.flatMap((each) => each.points.map(([x]) => x));
    const ys = shown.flatMap((each) => [...each.points.map(([, y]) => y), ...(each.band ?? []).flatMap(([, low, high]) => [low, high])]);
    const right = 14;
    const top = options.y.label ? 26 : 12;
    const bottom = options.x.label ? 42 : 26;
    const yAxis = axis({ ...options.y, values: [...ys, ...marks.map((each) => each.y)], room: (height - top - bottom) / 44 });
    const left = leftMargin(yAxis, options.y);
    const xAxis = axis({ ...options.x, values: [...xs, ...marks.map((each) => each.x)], room: (width - left - right) / 76 });
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img",
      "aria-label": `${options.label ?? "Chart"}. Arrow keys read the values.` });
    const { toX, toY, across, down } = frame(svg, { width, height, left, right, top, bottom, xAxis, yAxis, x: options.x, y: options.y });
    svg.append(s("clipPath", { id: clip }, s("rect", { x: left, y: top - 4, width: across, height: down + 8 })));
    const inside = s("g", { "clip-path": `url(#${clip})` });
    for (const each of [...shown].sort((a, b) => Number(a.focus ?? 0) - Number(b.focus ?? 0))) {
      const { stroke, dash } = look(each);
      if (each.band) {
        const usable = each.band.filter(([x, low, high]) => xAxis.inside(x) && yAxis.inside(low) && yAxis.inside(high));
        const up = usable.map(([x, , high]) => `${toX(x)},${toY(high)}`);
        const back = usable.map(([x, low]) => `${toX(x)},${toY(low)}`).reverse();
        inside.append(s("polygon", { class: "band", points: [...up, ...back].join(" "), style: { fill: stroke } }));
      }
      const usable = each.points.filter(([x, y]) => xAxis.inside(x) && yAxis.inside(y));
      const path = usable.map(([x, y], i) => `${i ? "L" : "M"}${toX(x).toFixed(2)} ${toY(y).toFixed(2)}`).join("");
      inside.append(s("path", { class: each.focus ? "line focus" : "line", d: path, "stroke-dasharray": dash || null, "data-series": each.id, style: { stroke } }));
      if (each.dots || usable.length === 1) {
        for (const [x, y] of usable) inside.append(s("circle", { class: "dot", cx: toX(x), cy: toY(y), r: 3.2, style: { fill: stroke } }));
      }
    }
    svg.append(inside);
    for (const guide of options.guides ?? []) {
      if (guide.x !== undefined && xAxis.inside(guide.x) && guide.x <= xAxis.high) svg.append(s("line", { class: "guide", x1: toX(guide.x), x2: toX(guide.x), y1: top, y2: height - bottom }));
      if (guide.y !== undefined && yAxis.inside(guide.y) && guide.y >= yAxis.low) svg.append(s("line", { class: "guide", x1: left, x2: width - right, y1: toY(guide.y), y2: toY(guide.y) }));
    }
    for (const mark of marks) {
      if (!xAxis.inside(mark.x) || !yAxis.inside(mark.y)) continue;
      const at = [toX(mark.x), toY(mark.y)];
      svg.append(s("circle", { class: "mark", cx: at[0], cy: at[1], r: 6 }));
      if (mark.label) {
        const leftSide = at[0] > left + across * 0.65;
        svg.append(s("text", { class: "marklabel", x: at[0] + (leftSide ? -11 : 11), y: mark.below ? at[1] + 20 : Math.max(top + 10, at[1] - 9), "text-anchor": leftSide ? "end" : "start" }, mark.label));
      }
    }
    const line = s("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
    svg.append(line);
    geometry = { width, left, top, across, xAxis, yAxis, toX, toY, line, svg };
    svg.addEventListener("pointermove", (event) => {
      const share = (event.offsetX - left) / across;
      if (share < -0.02 || share > 1.02) { leave(); return; }
      read(xAxis.back(Math.min(1, Math.max(0, share))));
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", step);
    const focused = box.contains(document.activeElement) && document.activeElement.tagName === "svg";
    replace(box, svg, tip.element);
    tip.hide();
    if (focused) svg.focus({ preventScroll: true });
    drawLegend();
  }

  function leave() {
    cursor = null;
    tip.hide();
    geometry?.line.setAttribute("visibility", "hidden");
  }

  function stops() {
    return [...new Set(visible().flatMap((each) => each.points.map(([x]) => x)))].filter((x) => geometry.xAxis.inside(x)).sort((a, b) => a - b);
  }

  function step(event) {
    const all = stops();
    if (!all.length) return;
    const at = cursor === null ? -1 : all.findIndex((x) => x >= cursor - 1e-12);
    const next = { ArrowRight: at + 1, ArrowLeft: at < 0 ? all.length - 1 : at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape") { leave(); return; }
    if (next === undefined) return;
    event.preventDefault();
    read(all[Math.min(all.length - 1, Math.max(0, next))], true);
  }

  // Show every series' value at the stop nearest to x.
  function read(x, say = false) {
    const near = (each) => each.points.reduce((best, point) =>
      (Math.abs(geometry.xAxis.place(point[0]) - geometry.xAxis.place(x)) < Math.abs(geometry.xAxis.place(best[0]) - geometry.xAxis.place(x)) ? point : best));
    const found = visible().map((each) => [each, near(each)]).filter(([, point]) => geometry.yAxis.inside(point[1]));
    if (!found.length) return;
    const distance = ([, point]) => Math.abs(geometry.xAxis.place(point[0]) - geometry.xAxis.place(x));
    const best = found.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    cursor = best[1][0];
    const place = geometry.toX(cursor);
    geometry.line.setAttribute("x1", place);
    geometry.line.setAttribute("x2", place);
    geometry.line.setAttribute("visibility", "visible");
    const spacing = 1.5 / Math.max(2, geometry.across);
    const here = found.filter(([, point]) => Math.abs(geometry.xAxis.place(point[0]) - geometry.xAxis.place(cursor)) < Math.max(spacing, 0.02));
    here.sort((a, b) => b[1][1] - a[1][1]);
    const value = options.y.read ?? ((each) => number(each));
    const title = `${options.x.label ?? "x"} ${(options.x.read ?? ((each) => number(each, 4)))(cursor)}`;
    tip.show(title, here.map(([each, point]) => [look(each).stroke, each.name, value(point[1])]), place, geometry.top, geometry.width);
    if (say) status.textContent = `${title}: ${here.map(([each, point]) => `${each.name} ${value(point[1])}`).join(", ")}`;
  }

  function drawLegend() {
    const active = legend.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    replace(legend, options.series.map((each) => {
      const { stroke, dash } = look(each);
      return h("button", {
        type: "button", "data-id": each.id, "aria-pressed": hidden.has(each.id) ? "false" : "true", class: each.points.length ? null : "waiting",
        title: each.note ?? null,
        onclick: () => { if (!hidden.delete(each.id)) hidden.add(each.id); options.onToggle?.([...hidden]); draw(); },
      }, s("svg", { width: 26, height: 10, "aria-hidden": "true" }, s("line", { x1: 1, x2: 25, y1: 5, y2: 5, "stroke-dasharray": dash || null, style: { stroke } })), each.name);
    }));
    if (active !== null) [...legend.children].find((each) => each.dataset.id === active)?.focus();
  }

  const stop = observe(box, draw);
  draw();
  return {
    element, hidden,
    update(next) { options = { ...options, ...next }; draw(); },
    end: stop,
  };
}

// bars: [[x, share]...] measured; outline: [[x, share]...] predicted; both at whole numbers x. `zoom`: leave out the
// ends where both are below a thousandth of the highest.
export function histogram(first = {}) {
  let options = { bars: [], outline: [], x: {}, y: {}, height: 280, names: ["measured", "predicted"], zoom: true, ...first };
  const box = h("div", { class: "plot" });
  const legend = h("div", { class: "legend" });
  const status = h("p", { class: "unseen", role: "status" });
  const tip = tooltip();
  const element = h("figure", { class: "chart" }, box, legend, status);

  function draw() {
    const width = Math.max(240, box.clientWidth || 640);
    const height = width < 520 ? Math.min(options.height, 240) : options.height;
    const bars = new Map(options.bars);
    const outline = new Map(options.outline);
    const all = [...new Set([...bars.keys(), ...outline.keys()])].sort((a, b) => a - b);
    const peak = Math.max(0, ...bars.values(), ...outline.values());
    const some = options.zoom ? all.filter((x) => Math.max(bars.get(x) ?? 0, outline.get(x) ?? 0) > peak / 1000) : all;
    const low = some[0] ?? 0;
    const high = some[some.length - 1] ?? 1;
    const steps = [];
    for (let x = low; x <= high; x += 1) steps.push(x);
    const y = { format: (v) => number(v, 3), ...options.y };
    const top = y.label ? 26 : 12;
    const bottom = options.x.label ? 42 : 26;
    const right = 14;
    const yAxis = axis({ ...y, values: [0, peak], room: (height - top - bottom) / 44, zero: true, min: 0 });
    const left = leftMargin(yAxis, y);
    const xAxis = axis({ min: low - 0.5, max: high + 0.5, values: [], room: (width - left - right) / 60 });
    xAxis.ticks = xAxis.ticks.filter((tick) => Number.isInteger(tick));
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": `${options.label ?? "Histogram"}. Arrow keys read the values.` });
    const { toX, toY, across } = frame(svg, { width, height, left, right, top, bottom, xAxis, yAxis, x: { format: (v) => String(v), ...options.x }, y });
    const gap = across / Math.max(1, steps.length) > 6 ? 1 : 0;
    for (const x of steps) {
      const value = bars.get(x) ?? 0;
      if (value > 0) svg.append(s("rect", { class: "bar", x: toX(x - 0.5) + gap / 2, width: Math.max(0.5, toX(x + 0.5) - toX(x - 0.5) - gap), y: toY(value), height: Math.max(0, toY(0) - toY(value)) }));
    }
    if (outline.size) {
      const corners = [`M${toX(low - 0.5)} ${toY(0)}`];
      for (const x of steps) corners.push(`L${toX(x - 0.5).toFixed(2)} ${toY(outline.get(x) ?? 0).toFixed(2)}L${toX(x + 0.5).toFixed(2)} ${toY(outline.get(x) ?? 0).toFixed(2)}`);
      corners.push(`L${toX(high + 0.5)} ${toY(0)}`);
      svg.append(s("path", { class: "outline", d: corners.join("") }));
    }
    const line = s("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
    svg.append(line);
    let at = null;
    const read = (x, say) => {
      at = Math.min(high, Math.max(low, x));
      line.setAttribute("x1", toX(at)); line.setAttribute("x2", toX(at)); line.setAttribute("visibility", "visible");
      const lines = [];
      if (bars.size) lines.push(["var(--bar)", options.names[0], number(bars.get(at) ?? 0)]);
      if (outline.size) lines.push(["var(--outline)", options.names[1], number(outline.get(at) ?? 0)]);
      tip.show(`${options.x.label ?? "x"} ${at}`, lines, toX(at), top, width);
      if (say) status.textContent = `${options.x.label ?? "x"} ${at}: ${lines.map(([, name, value]) => `${name} ${value}`).join(", ")}`;
    };
    const leave = () => { at = null; tip.hide(); line.setAttribute("visibility", "hidden"); };
    svg.addEventListener("pointermove", (event) => {
      const share = (event.offsetX - left) / across;
      if (share < 0 || share > 1) leave(); else read(Math.round(xAxis.back(share)));
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const next = { ArrowRight: (at ?? low - 1) + 1, ArrowLeft: (at ?? high + 1) - 1, Home: low, End: high }[event.key];
      if (event.key === "Escape") leave();
      if (next === undefined) return;
      event.preventDefault();
      read(next, true);
    });
    replace(box, svg, tip.element);
    tip.hide();
    const keys = [];
    if (bars.size) keys.push(h("span", { class: "key" }, h("i", { class: "swatch bar" }), options.names[0]));
    if (outline.size) keys.push(h("span", { class: "key" }, h("i", { class: "swatch outline" }), options.names[1]));
    replace(legend, keys);
  }

  const stop = observe(box, draw);
  draw();
  return { element, update(next) { options = { ...options, ...next }; draw(); }, end: stop };
}
