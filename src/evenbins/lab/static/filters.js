// The page Filters.

import { h } from "./dom.js";

export default {
  title: "Filters",
  mount(root) {
    root.append(h("h1", {}, "Filters"));
    return () => {};
  },
};
