// The page Inspect: a file is dropped or chosen, and shown as `evenbins inspect` shows it.
//
// The file goes to the lab's server, on this machine, which checks every byte and forgets it. Nothing of it is read
// as markup or as a program: all that comes back are texts.

import { only } from "./api.js";
import { card, copyBox, dataTable, progress } from "./controls.js";
import { h, replace, uid } from "./dom.js";
import { bytes } from "./format.js";

const MOST = 2 ** 28;  // bytes, as the server takes them

export default {
  title: "Inspect",
  mount(root, { api, notify }) {
    const reading = only();
    const input = h("input", { type: "file", id: uid("file"), accept: ".evb,.evenbins", "aria-describedby": "limits" });
    const zone = h("div", { class: "drop" },
      h("p", {}, "Drop a file here, or"),
      h("div", {}, input, h("label", { for: input.id }, "Choose a file")),
      h("p", { class: "hint", id: "limits" }, `Any file that evenbins has written, of at most ${bytes(MOST)}: filters, tables, sketches, summaries, rings, Deduplicators.`));
    const bar = progress({ label: "Checking the file", onCancel: () => { reading.abort(); bar.end(); } });
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    const shown = h("div", { class: "stack" });

    const say = (text) => { problem.hidden = !text; problem.textContent = text; };
    const inspect = (file) => reading(async (signal) => {
      notify(null);
      say("");
      replace(shown);
      if (file.size > MOST) {
        say(`${file.name}: the file has ${bytes(file.size)}, and the lab takes at most ${bytes(MOST)}: run “evenbins inspect FILE”, which takes any size.`);
        return;
      }
      bar.start(`checking ${file.name} …`);
      try {
        show(await api.post("inspect/file", { name: file.name }, { body: file, signal }));
      } catch (error) {
        if (error.name !== "ApiError") throw error;
        say(error.status === 0 ? `${file.name}: it could not be sent; if it changed since it was chosen, choose it again. ${error.message}` : error.message);
      } finally {
        if (!signal.aborted) bar.end();
      }
    }).catch(notify);

    const show = (found) => {
      const command = copyBox({ label: "command", text: found.command });
      const python = copyBox({ label: "Python", text: found.python.trimEnd() });
      const heading = h("h2", { tabindex: -1 }, `${found.name}: ${found.title}`);
      replace(shown,
        h("div", { class: "pair" },
          h("section", { class: "card" }, heading,
            h("table", { class: "about" }, h("tbody", {}, found.facts.map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, text)))))),
          card("Planned beside measured", dataTable({
            rows: found.rows,
            columns: [
              { label: "", align: "left", cell: ([name]) => name.replaceAll("_", " ") },
              { label: "planned", cell: ([, planned]) => planned },
              { label: "measured", cell: ([, , measured]) => measured },
            ],
          }))),
        h("div", { class: "pair" }, found.histograms.map((each) => card(each.title ? sentence(each.title) : "Loads", dataTable({
          rows: each.rows,
          columns: [
            ...each.columns.map((label, i) => ({ label, align: i ? null : "left", cell: ([texts]) => texts[i] })),
            { label: h("span", { class: "unseen" }, "share of the highest"), align: "left", cell: ([, share]) => h("div", { class: "loadbar" }, h("i", { style: { width: `${100 * share}%` } })) },
          ],
        })))),
        card("Take it with you", command.element, python.element));
      heading.focus({ preventScroll: true });
      shown.scrollIntoView({ block: "nearest" });
    };

    // A file dropped beside the zone must not replace the page.
    const take = (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      if (event.type !== "drop") return;
      const items = [...(event.dataTransfer?.items ?? [])].filter((each) => each.kind === "file");
      const files = [...(event.dataTransfer?.files ?? [])];
      if (items[0]?.webkitGetAsEntry?.()?.isDirectory) say("This is a folder: drop one file. A filter in shards, which is a folder, is shown by “evenbins inspect FOLDER”.");
      else if (files.length > 1) say(`${files.length} files were dropped: drop one at a time.`);
      else if (files.length === 1) inspect(files[0]);
      else say("What was dropped is no file.");
    };
    const over = (event) => { event.preventDefault(); zone.classList.add("over"); };
    const listeners = [["dragover", over], ["dragleave", take], ["drop", take]];
    for (const [name, listener] of listeners) document.addEventListener(name, listener);
    input.addEventListener("change", () => {
      const [file] = input.files;
      if (file) inspect(file);
      input.value = "";  // the same file may be chosen again
    });

    root.append(
      h("h1", {}, "Inspect"),
      h("p", { class: "lede" }, "What is in this file? What was planned beside what is measured, how full its blocks are, and whether every byte is as it was written."),
      h("div", { class: "stack" }, zone, bar.element, problem, shown));
    return () => {
      reading.abort();
      for (const [name, listener] of listeners) document.removeEventListener(name, listener);
    };
  },
};

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}
