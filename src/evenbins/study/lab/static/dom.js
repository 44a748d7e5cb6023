// Elements from data. Text always becomes a text node: no string is ever read as markup.
//
//   h("button", { class: "primary", type: "button", onclick: run }, "Run")
//   s("circle", { cx: 3, cy: 4, r: 2 })
//
// Attributes that are null, undefined or false are left out; true is the empty attribute; functions are listeners.
// `style` takes an object of CSS properties, set one by one (a style attribute would be refused by the CSP).

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function replace(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

let ids = 0;
export function uid(prefix = "e") {
  ids += 1;
  return `${prefix}-${ids}`;
}
