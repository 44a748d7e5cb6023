// One circle of servers: bins that fill outwards up to their limit, the path of the last key, the moves of the last change.
//
//   const scene = ringScene({ name: "CH-BL", onPick: (server, place) => menu.open(server, place) });
//   scene.show({ order, loads, states, limit, path, node, moves, changed });
//
// `order` is the order of the circle; every server has the same angle in both pictures. One tab stop a circle: arrows
// go round, Enter opens the menu of a server.

import { h, replace, s } from "./dom.js";

const SIZE = 440;
const CENTRE = SIZE / 2;
const INNER = 134;
const DEEP = 58;
const ROOT = 126;  // where paths begin and end

function spot(angle, radius) {
  return [CENTRE + radius * Math.sin(angle), CENTRE - radius * Math.cos(angle)];
}

function curve(from, to, bend = 0.66) {
  const [ax, ay] = spot(from, ROOT);
  const [bx, by] = spot(to, ROOT);
  const [mx, my] = [CENTRE + ((ax + bx) / 2 - CENTRE) * bend, CENTRE + ((ay + by) / 2 - CENTRE) * bend];
  return `M${ax.toFixed(1)} ${ay.toFixed(1)}Q${mx.toFixed(1)} ${my.toFixed(1)} ${bx.toFixed(1)} ${by.toFixed(1)}`;
}

export function ringScene({ name, onPick }) {
  const svg = s("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "circle", role: "group", "aria-label": `${name}: servers on a circle. Arrow keys go round, Enter opens a server's menu.` });
  const element = h("div", { class: "circlebox" }, svg);
  const bins = new Map();
  let shown = [];
  let current = null;
  const base = s("circle", { class: "base", cx: CENTRE, cy: CENTRE, r: INNER - 3 });
  const middle = s("g", { class: "middle" });
  const paths = s("g", { class: "paths" });
  const group = s("g", {});
  svg.append(base, group, paths, middle);

  function build(order) {
    const focused = svg.contains(document.activeElement) ? current : null;
    bins.clear();
    shown = order;
    const width = Math.min(30, ((2 * Math.PI * INNER) / Math.max(6, order.length)) * 0.74);
    replace(group, order.map((server, place) => {
      const angle = (2 * Math.PI * place) / order.length;
      const [x, y] = spot(angle, INNER + DEEP + 14);
      const fill = s("rect", { class: "fill", x: CENTRE - width / 2, width, rx: 2 });
      const cross = s("path", { class: "cross", d: `M${CENTRE - 6} ${CENTRE - INNER - DEEP / 2 - 6}l12 12m0 -12l-12 12` });
      const text = s("text", { x, y, dy: "0.35em", "text-anchor": "middle", class: order.length > 36 ? "tiny" : null, "aria-hidden": "true" }, server);
      const bin = s("g", { transform: `rotate(${(360 * place) / order.length} ${CENTRE} ${CENTRE})` },
        s("rect", { class: "hit", x: CENTRE - Math.max(width, 16) / 2 - 2, width: Math.max(width, 16) + 4, y: CENTRE - INNER - DEEP - 6, height: DEEP + 12 }),
        s("rect", { class: "bin", x: CENTRE - width / 2, width, y: CENTRE - INNER - DEEP, height: DEEP, rx: 3 }), fill, cross);
      const node = s("g", { class: "server", role: "button", tabindex: -1, "aria-haspopup": "menu", "data-server": server,
        onclick: () => { hold(server); onPick(server, box(server)); },
        onkeydown: (event) => key(event, server) }, bin, text);
      bins.set(server, { angle, node, fill });
      return node;
    }));
    if (!bins.has(current)) current = order[0] ?? null;
    bins.get(current)?.node.setAttribute("tabindex", "0");
    if (focused !== null) bins.get(current)?.node.focus();
  }

  function hold(server) {
    bins.get(current)?.node.setAttribute("tabindex", "-1");
    current = server;
    bins.get(current)?.node.setAttribute("tabindex", "0");
  }

  function key(event, server) {
    const at = shown.indexOf(server);
    const move = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (move !== undefined) {
      event.preventDefault();
      hold(shown[(move + shown.length) % shown.length]);
      bins.get(current).node.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onPick(server, box(server));
    }
  }

  function box(server) {
    return bins.get(server)?.node.querySelector(".bin").getBoundingClientRect();
  }

  // What happened last: `path` of a key ending at `node`, or `moves` [[key, from, to]...] of a change of `changed`.
  function show({ order, loads, states, limit, path = [], node = null, moves = [], changed = null, alive = false }) {
    if (order.length !== shown.length || order.some((each, i) => each !== shown[i])) build(order);
    for (const [server, bin] of bins) {
      const load = loads[server] ?? 0;
      const state = states[server] ?? "up";
      const part = Math.min(1.12, limit > 0 ? load / limit : 0);
      bin.fill.setAttribute("height", (DEEP * part).toFixed(2));
      bin.fill.setAttribute("y", (CENTRE - INNER - DEEP * part).toFixed(2));
      const full = state === "up" && limit > 0 && load >= limit;
      bin.node.setAttribute("class", `server ${state}${full ? " full" : ""}${server === node ? " landed" : ""}${server === changed ? " changed" : ""}${path.includes(server) && server !== node ? " passed" : ""}`);
      bin.node.setAttribute("aria-label", `server ${server}: ${load} of ${limit} keys${full ? ", full" : ""}${state === "up" ? "" : `, ${state}`}`);
    }
    const drawn = [];
    const to = path.filter((server) => bins.has(server));
    for (let i = 0; i + 1 < to.length; i += 1) {
      drawn.push(s("path", { class: `hop${alive ? " alive" : ""}`, d: curve(bins.get(to[i]).angle, bins.get(to[i + 1]).angle), pathLength: 1, style: { "animation-delay": `${i * 90}ms` } }));
    }
    for (const server of to) {
      const [x, y] = spot(bins.get(server).angle, ROOT);
      drawn.push(s("circle", { class: server === node ? "stop end" : "stop", cx: x, cy: y, r: server === node ? 5 : 3.6 }));
    }
    const sums = new Map();
    for (const [, from, target] of moves) {
      const pair = `${from} ${target}`;
      sums.set(pair, (sums.get(pair) ?? 0) + 1);
    }
    for (const [pair, many] of sums) {
      const [from, target] = pair.split(" ").map(Number);
      const start = bins.get(from) ?? { angle: null };
      if (!bins.has(target)) continue;
      if (start.angle === null) {  // the server has left the circle: its keys come from the middle
        const [x, y] = spot(bins.get(target).angle, ROOT);
        drawn.push(s("path", { class: `move${alive ? " alive" : ""}`, d: `M${CENTRE} ${CENTRE}L${x} ${y}`, pathLength: 1, "stroke-width": 1.4 + Math.min(4.6, 0.8 * (many - 1)) }));
      } else {
        drawn.push(s("path", { class: `move${alive ? " alive" : ""}`, d: curve(start.angle, bins.get(target).angle, 0.5), pathLength: 1, "stroke-width": 1.4 + Math.min(4.6, 0.8 * (many - 1)) }));
      }
      const [x, y] = spot(bins.get(target).angle, ROOT);
      drawn.push(s("circle", { class: "stop moved", cx: x, cy: y, r: 3 }));
    }
    replace(paths, drawn);
    const words = moves.length ? [`${moves.length}`, moves.length === 1 ? "key moved" : "keys moved"]
      : path.length > 1 ? [`${path.length}`, "servers looked at"] : [];
    replace(middle, words.length ? [
      s("text", { class: "big", x: CENTRE, y: CENTRE - 2, "text-anchor": "middle" }, words[0]),
      s("text", { class: "small", x: CENTRE, y: CENTRE + 18, "text-anchor": "middle" }, words[1]),
    ] : []);
  }

  return { element, svg, show, focus(server) { if (bins.has(server)) hold(server); bins.get(current)?.node.focus(); } };
}
