// The form of a subscription. Where it looks is a list of shapes, which the map has as well: whoever changes one changes the other.

import { getFrom } from "/static/api.js";
import { el, show } from "/static/dom.js";
import { both, comparison, Draft } from "/static/dskype/draft.js";
import { field, path, problem } from "/static/dskype/page.js";
import { rankBy } from "/static/dskype/results.js";
import { fieldsOf, shapesOf } from "/static/dskype/shapes.js";

const form = document.getElementById("form");
const NAMES = { bbox: "Rectangle", circle: "Circle", polygon: "Polygon" };
const NUMBERS = {
  bbox: [["west", "West", 180], ["south", "South", 90], ["east", "East", 180], ["north", "North", 90]],
  circle: [["center_lat", "Latitude", 90], ["center_lon", "Longitude", 180], ["radius_m", "Radius (metres)", null]],
};

const number = (name) => Number(field(name).value);
const kind = () => field("kind").value;

/** The fields of a registered subscription that the form has, and those that say how it is. */
const KNOWN = new Set("id type text keywords lat lon k min_score alpha distance scale_m where bbox region expression ttl_s initial inside meta tenant status since registration registered_ms limit limited_ms error".split(" "));

/** Tell whether a text is a value in JSON, or nothing. */
function isJson(text) {
  try {
    return !text.trim() || JSON.parse(text) !== undefined;
  } catch {
    return false;
  }
}

/** Show the parts of the form that belong to a choice. */
function choose(name, value) {
  for (const part of form.querySelectorAll(`[data-${name}]`)) part.hidden = part.disabled = !part.dataset[name].split(" ").includes(value);
}

// -- where ---------------------------------------------------------------------------------------------------------------------

/** Return the rings of a text: a line for each corner, an empty line between rings; null if it is something else. */
function ringsOf(text) {
  const rings = text.trim().split(/\n\s*\n/).map((part) => part.trim().split("\n").map((line) => line.split(/[,;\s]+/).filter(Boolean).map(Number)));
  const good = ([lat, lon, ...more]) => Math.abs(lat) <= 90 && Math.abs(lon) <= 180 && !more.length;
  return rings.every((ring) => ring.length >= 3 && ring.every(good)) ? rings.map((ring) => ring.map(([lat, lon]) => [lon, lat])) : null;
}

const textOf = (rings) => rings.map((ring) => ring.map(([lon, lat]) => `${lat}, ${lon}`).join("\n")).join("\n\n");

/** Return what the fields of a row hold of a shape. */
const values = ({ kind, bbox, lat, lon, radius_m, rings }) => (kind === "bbox" ? bbox : kind === "circle" ? [lat, lon, radius_m] : [textOf(rings)]);

/** Return the shape of a row of fields. */
function shapeIn(row) {
  const { shape: kind } = row.dataset;
  const fields = [...row.querySelectorAll("input, textarea")];
  if (kind === "polygon") {
    const rings = ringsOf(fields[0].value);
    fields[0].setCustomValidity(rings ? "" : "Expected at least three lines with a latitude and a longitude each.");
    return { kind, rings: rings ?? [], bad: !rings };
  }
  const bad = fields.some((one) => one.value === "" || !one.validity.valid);
  const [a, b, c, d] = fields.map((one) => Number(one.value));
  return kind === "bbox" ? { kind, bbox: [a, b, c, d], bad: bad || b > d } : { kind, lat: a, lon: b, radius_m: c, bad };
}

export class SubscriptionForm {
  /**
   * @param changed called with the shapes after each change that is made in the form.
   * @param counted called with a few words about how many messages the subscription would have matched.
   */
  constructor(changed, counted) {
    Object.assign(this, { changed, shapes: [], attributes: [], objects: false, initial: true });
    const ready = () => form.matches(":valid") && (kind() !== "boolean" || field("expression").value.trim() || this.shapes.length);
    this.draft = new Draft(() => (ready() ? this.described() : null), counted);
    form.addEventListener("input", ({ target }) => this.#input(target));
    field("attribute").addEventListener("change", () => this.#offerComparisons());
    field("compare").addEventListener("click", () => this.#compare());
    this.#kindChanged();
  }

  get kind() {
    return kind();
  }

  /** Return the subscription that the form describes. */
  described() {
    const ttl = field("ttl_s").value === "" ? {} : { ttl_s: number("ttl_s") };
    const tenant = field("tenant").value === "" ? {} : { tenant: field("tenant").value };
    const more = { ...ttl, ...tenant, ...this.#meta(), ...this.#kept() };
    if (kind() !== "boolean") {
      const wanted = kind() === "topk" ? { k: number("k") } : { min_score: number("min_score") };
      const where = field("where").value.trim() === "" ? {} : { where: field("where").value };
      const scale = field("distance").value ? { distance: "metres", scale_m: number("scale_m") } : {};
      return { type: kind(), text: field("text").value, lat: number("lat"), lon: number("lon"), ...wanted, alpha: number("alpha"), ...scale, ...where, ...more };
    }
    this.shapes = [...document.querySelectorAll("#shapes > .shape")].map(shapeIn); // a program may have filled the fields
    const expression = field("expression").value.trim() === "" ? {} : { expression: field("expression").value };
    const flags = { ...(field("initial").checked ? { initial: this.initial } : {}), ...(field("inside").checked ? { inside: true } : {}) };
    return { type: "boolean", ...fieldsOf(this.shapes), ...expression, ...flags, ...more };
  }

  #meta() {
    const text = field("meta").value.trim();
    return text === "" ? {} : { meta: JSON.parse(text) };
  }

  /** Return the fields of an edited subscription that the form does not have. */
  #kept() {
    return this.edited && this.edited.id === field("id").value && this.edited.kind === kind() ? this.edited.kept : {};
  }

  /** Take over shapes from the map. A place belongs to a list of the best messages, an area to all that match. */
  take(shapes) {
    this.shapes = shapes;
    const wanted = !shapes.length ? kind() : shapes[0].kind !== "point" ? "boolean" : kind() === "boolean" ? "topk" : kind();
    if (wanted !== kind()) {
      form.querySelector(`[name="kind"][value="${wanted}"]`).checked = true;
      this.#showKind();
    }
    if (wanted !== "boolean" && shapes.length) [field("lat").value, field("lon").value] = [shapes[0].lat, shapes[0].lon];
    this.#rows();
    this.draft.changed();
  }

  /** Fill the form with a subscription that is there. */
  fill(id, fields) {
    const set = (name, value) => (field(name).value = value ?? "");
    const given = ["topk", "threshold"].includes(fields.type) ? fields.type : "boolean";
    this.edited = { id, kind: given, kept: Object.fromEntries(Object.entries(fields).filter(([name]) => !KNOWN.has(name))) };
    form.querySelector(`[name="kind"][value="${given}"]`).checked = true;
    set("id", id);
    set("ttl_s", fields.ttl_s);
    set("tenant", fields.tenant);
    set("meta", fields.meta === undefined ? "" : JSON.stringify(fields.meta));
    field("meta").setCustomValidity("");
    this.initial = Number.isInteger(fields.initial) ? fields.initial : true; // a number is kept while the box is checked
    field("initial").checked = Boolean(fields.initial);
    field("inside").checked = fields.inside === true;
    document.getElementById("more").open = ["meta", "initial", "inside", "tenant"].some((name) => fields[name] !== undefined);
    if (given !== "boolean") {
      set("text", fields.text ?? fields.keywords?.join(" "));
      for (const name of ["lat", "lon", given === "topk" ? "k" : "min_score", "alpha", "where"]) set(name, fields[name]);
      set("distance", fields.distance === "metres" ? "metres" : "");
      if (fields.distance === "metres") set("scale_m", fields.scale_m);
    } else {
      set("expression", fields.expression ?? fields.keywords?.map((word) => `"${word}"`).join(" AND "));
    }
    this.shapes = shapesOf(fields);
    this.#showKind();
    this.#rows();
    this.changed(this.shapes);
    this.draft.changed();
  }

  #input(target) {
    if (["attribute", "sign", "value", "id", "topology"].includes(target.name)) return;
    if (target.name === "kind") return this.#kindChanged();
    if (target.name === "distance") this.#showScale();
    if (target.name === "meta") target.setCustomValidity(isJson(target.value) ? "" : 'Expected JSON, for example "mail" or {"user": 7}.');
    const row = target.closest(".shape");
    if (row) this.shapes = this.shapes.map((shape, i) => (String(i) === row.dataset.number ? shapeIn(row) : shape));
    else if (target.name === "lat" || target.name === "lon") this.shapes = this.#point();
    this.changed(this.shapes);
    this.draft.changed();
  }

  #point() {
    const good = ["lat", "lon"].every((name) => field(name).value !== "" && field(name).validity.valid);
    return good ? [{ kind: "point", lat: number("lat"), lon: number("lon") }] : [];
  }

  #showKind() {
    this.shown = kind();
    choose("kind", kind());
    // With objects there are neither scores to reach nor what matches already.
    field(this.objects ? "initial" : "inside").labels[0].hidden = true;
    form.querySelector('[name="kind"][value="threshold"]').labels[0].hidden = this.objects;
    this.#showScale();
  }

  #showScale() {
    document.getElementById("scale").hidden = field("scale_m").disabled = field("distance").value === "";
  }

  #kindChanged() {
    const before = this.shown;
    this.#showKind();
    if (kind() !== "boolean") {
      if (before === "boolean") this.areas = this.shapes.filter(({ kind }) => kind !== "point");
      this.shapes = this.#point();
    } else this.shapes = this.areas ?? [];
    this.#rows();
    this.changed(this.shapes);
    this.draft.changed();
  }

  /** Show a row of fields for each area. Rows stay while there are the same, so that a field that is being written in keeps the cursor. */
  #rows() {
    const box = document.getElementById("shapes");
    const areas = this.shapes.filter(({ kind }) => kind !== "point");
    const same = box.children.length === areas.length && areas.every(({ kind }, i) => box.children[i].dataset.shape === kind);
    if (!same) box.replaceChildren(...areas.map((shape, i) => this.#row(shape, i)));
    areas.forEach((shape, i) => {
      const fields = [...box.children[i].querySelectorAll("input, textarea")];
      values(shape).forEach((value, j) => shape.bad || (fields[j].value = value));
    });
    document.getElementById("everywhere").hidden = areas.length > 0;
  }

  #row({ kind, rings }, i) {
    const numbers = (NUMBERS[kind] ?? []).map(([name, label, most]) =>
      el("label", {}, `${label} `, el("input", { name, type: "number", step: "any", min: most === null ? 1 : -most, max: most, required: true })),
    );
    const rows = rings ? Math.min(8, textOf(rings).split("\n").length) : 0;
    const corners = el("label", { class: "wide" }, "Corners (latitude, longitude) ", el("textarea", { name: "corners", rows, spellcheck: "false", required: true }));
    const remove = el("button", { type: "button", onclick: () => this.#remove(i), "aria-label": `Remove ${NAMES[kind].toLowerCase()} ${i + 1}` }, "Remove");
    return el("fieldset", { class: "shape fields", "data-shape": kind, "data-number": String(i) }, el("legend", {}, `${NAMES[kind]} ${i + 1}`), kind === "polygon" ? corners : numbers, remove);
  }

  #remove(i) {
    this.shapes = this.shapes.filter((_, j) => j !== i);
    this.#rows();
    this.changed(this.shapes);
    this.draft.changed();
  }

  // -- what expressions may speak of -----------------------------------------------------------------------------------------

  async offerLanguage() {
    const language = await getFrom(path("language"));
    ({ attributes: this.attributes, objects: this.objects } = language);
    rankBy(language);
    field("tenant").labels[0].hidden = !language.tenants;
    document.getElementById("tenants").replaceChildren(...(language.tenants ?? []).map((value) => el("option", { value })));
    this.#showKind();
    document.getElementById("comparison").hidden = !this.attributes.length;
    field("attribute").replaceChildren(...this.attributes.map(({ name, type }) => el("option", { value: name }, `${name} (${type})`)));
    if (this.attributes.length) this.#offerComparisons();
  }

  get #attribute() {
    return this.attributes.find(({ name }) => name === field("attribute").value);
  }

  #offerComparisons() {
    const { comparisons, type } = this.#attribute;
    field("sign").replaceChildren(...comparisons.map((sign) => el("option", { value: sign }, sign)));
    field("value").placeholder = EXAMPLES[type];
    field("value").value = "";
  }

  #compare() {
    const sign = field("sign").value;
    if (sign !== "exists" && !/^[^"]*[^"\s][^"]*$/.test(field("value").value)) return problem(new Error("To compare an attribute, enter a value without double quotes."));
    const input = field(kind() === "boolean" ? "expression" : "where");
    input.value = both(input.value, comparison(this.#attribute, sign, field("value").value));
    show("answer");
    this.draft.changed();
  }
}

const EXAMPLES = { number: "200", string: "cafe", boolean: "true", strings: "vegan", time: "2026-01-31T12:00:00Z" };
