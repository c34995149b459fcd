// Colours of the style sheet, for what is drawn on a canvas.

const probe = document.body.appendChild(document.createElement("i"));
probe.hidden = true;

/** Return the colour that a variable of the style sheet, such as `--accent`, has in the present scheme. */
export function colour(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}
