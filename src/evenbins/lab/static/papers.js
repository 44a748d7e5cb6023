// The page Papers.

import { h } from "./dom.js";

export default {
  title: "Papers",
  mount(root) {
    root.append(h("h1", {}, "Papers"));
    return () => {};
  },
};
