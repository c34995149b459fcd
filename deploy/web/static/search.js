// The search for a place by its name: a field with a list below it (the pattern "combobox" of ARIA), for the mouse and the keyboard.

import { el } from "/static/dom.js";

/**
 * Let a field search.
 * @param input the field. @param list the empty list below it.
 * @param find returns places for a text. @param go called with the chosen place.
 */
export function search(input, list, find, go) {
  let [places, at] = [[], -1];
  const mark = (next) => {
    at = next;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
    if (at >= 0) input.setAttribute("aria-activedescendant", list.children[at].id);
    else input.removeAttribute("aria-activedescendant");
  };
  const open = (found) => {
    places = found;
    list.replaceChildren(...places.map(({ name, country }, i) => el("li", { role: "option", id: `place-${i}`, onpointerdown: (event) => choose(i, event) }, name, el("span", { class: "quiet" }, ` ${country}`))));
    list.hidden = !places.length;
    input.setAttribute("aria-expanded", String(places.length > 0));
    mark(-1);
  };
  const choose = (i, event) => {
    event.preventDefault();
    const place = places[i];
    open([]);
    input.value = place.name;
    go(place);
  };
  const keys = {
    ArrowDown: () => mark(places.length ? (at + 1) % places.length : -1),
    ArrowUp: () => mark(places.length ? (Math.max(at, 0) + places.length - 1) % places.length : -1),
    Escape: () => open([]),
    Enter: (event) => places.length && choose(Math.max(0, at), event),
  };
  input.addEventListener("input", () => open(find(input.value)));
  input.addEventListener("focus", () => input.value && open(find(input.value)));
  input.addEventListener("blur", () => open([]));
  input.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    if (event.key.startsWith("Arrow") || event.key === "Enter") event.preventDefault();
    keys[event.key](event);
  });
}
