// The frame: finds the page of the address, imports its module, mounts it.
//
// A page module is `export default { title, mount(root, ctx) }`; mount gives a function that ends it (aborts its
// calls, timers, observers). ctx = { state, api, notify }. Links between pages are real links: the browser's own
// history, one module at a time in memory. Going back within a page mounts it anew from its address; until its
// pictures are there it stays as high as it was, so that the browser can restore the place.

import { api } from "./api.js";
import { h, replace } from "./dom.js";
import { state } from "./state.js";

const PAGES = {
  filters: () => import("./filters.js"),
  fingerprints: () => import("./fingerprints.js"),
  tables: () => import("./tables.js"),
  rings: () => import("./rings.js"),
  routing: () => import("./routing.js"),
  dedup: () => import("./dedup.js"),
  inspect: () => import("./inspect.js"),
  papers: () => import("./papers.js"),
};

const KEEP_HEIGHT = 2000;  // milliseconds

const root = document.getElementById("content");
const notice = document.getElementById("notice");
let unmount = null;
let turn = 0;

// Say what went wrong where everybody finds it; notify(null) takes it back. Aborted calls are no news.
function notify(message) {
  if (message?.name === "AbortError") return;
  const text = message instanceof Error ? message.message : message;
  notice.hidden = !text;
  replace(notice);
  if (!text) return;
  if (message instanceof Error && message.name !== "ApiError") console.error(message);
  notice.append(
    h("span", {}, text),
    h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => notify(null) }, "×"),
  );
}

function end() {
  turn += 1;
  try { unmount?.(); } finally { unmount = null; }
}

async function show() {
  end();
  const mine = turn;
  notify(null);
  const name = location.pathname.replace(/^\/+|\/+$/g, "");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const load = Object.hasOwn(PAGES, name) ? PAGES[name] : null;
  if (!load) {
    document.title = "No such page · evenbins lab";
    replace(root, h("h1", {}, "There is no such page"),
      h("p", {}, "The pages are ", Object.keys(PAGES).map((page, i) => [i ? ", " : "", h("a", { href: `/${page}` }, page)]), "."));
    return;
  }
  try {
    const page = (await load()).default;
    if (mine !== turn) return;
    document.title = `${page.title} · evenbins lab`;
    root.style.minHeight = root.dataset.page === name ? `${root.offsetHeight}px` : "";
    root.dataset.page = name;
    replace(root);
    unmount = page.mount(root, { state, api, notify }) ?? null;
    root.querySelector(".lede")?.append(" ", h("a", { class: "docs", href: `/docs/${name}`, target: "_blank", rel: "noopener" }, "Documentation"));
    setTimeout(() => { if (mine === turn) root.style.minHeight = ""; }, KEEP_HEIGHT);
  } catch (error) {
    notify(error);
  }
}

const THEMES = ["system", "light", "dark"];
const themeButton = document.getElementById("theme");

function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

function nameTheme() {
  const glyph = { system: "◐", light: "☀", dark: "☾" }[theme()];
  replace(themeButton, h("span", { "aria-hidden": "true" }, glyph), h("span", { class: "wide" }, ` ${theme()}`));
  themeButton.setAttribute("aria-label", `Theme: ${theme()}. Change it`);
}

themeButton.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try { localStorage.setItem("evenbins-theme", next); } catch { /* not remembered, then */ }
  nameTheme();
  window.dispatchEvent(new Event("themechange"));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("themechange")));

window.addEventListener("popstate", () => { if (state.moved()) show(); });
window.addEventListener("pagehide", () => { state.flush(); end(); });
window.addEventListener("pageshow", (event) => { if (event.persisted) show(); });
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError" || event.reason?.name === "ApiError") event.preventDefault();
  notify(event.reason);
});

nameTheme();
show();
