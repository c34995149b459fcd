// Draws shapes on a map, and changes them: tools for the mouse, a finger or the keyboard, and handles at corners. Leaflet is `L`.

import { colour } from "/static/dskype/colours.js";
import { drawn, handlesOf, layersOf, placed } from "/static/dskype/shapes.js";
import { tip } from "/static/dskype/world.js";

const CLICK = 8; // pixels that a click may move
const FIRST = 12; // pixels around the first corner in which a click closes the polygon
const SAME = 5; // pixels between the clicks of a double click
const MOST_HANDLES = 200;
const STEP = 8; // pixels of an arrow key
const ARROWS = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };

export class Drawing {
  /**
   * @param changed called with the shapes after each change that is made on the map.
   * @param began called with the tool that has been taken, or null.
   */
  constructor(map, changed, began) {
    Object.assign(this, { map, changed, began, shapes: [], handles: [], tool: null, corners: [], from: null, shown: true });
    for (const [name, zIndex] of [["shapes", 430], ["handles", 620]]) map.createPane(name).style.zIndex = zIndex;
    this.renderer = L.svg({ pane: "shapes" });
    [this.layers, this.sketch, this.grips] = [0, 1, 2].map(() => L.layerGroup().addTo(map));
    this.count = L.tooltip({ permanent: true, direction: "top", className: "count", offset: [0, -8] });
    map.getContainer().addEventListener("pointerdown", (event) => this.#down(event));
    document.addEventListener("pointermove", (event) => this.tool && event.isPrimary && this.#move(event));
    document.addEventListener("pointerup", (event) => this.tool && event.isPrimary && this.#up(event));
    document.addEventListener("keydown", (event) => this.tool && this.#key(event));
  }

  /** Show shapes; those that are `bad`, because a number is missing, are left out. */
  set(shapes) {
    this.shapes = shapes;
    this.#show();
    this.#grip();
  }

  /** Say something beside what was drawn last; nothing is said if the text is empty. */
  say(text) {
    const last = this.shapes.filter(({ bad }) => !bad).at(-1);
    if (!text || !last) return this.count.remove();
    const layer = layersOf(last, {})[0];
    const at = layer.getBounds && last.kind !== "circle" ? [layer.getBounds().getNorth(), layer.getBounds().getCenter().lng] : [this.#top(last), last.lon];
    this.count.setLatLng(at).setContent(tip(text)).addTo(this.map);
  }

  #top({ kind, lat, radius_m }) {
    return kind === "circle" ? Math.min(90, lat + radius_m / 111_195) : lat;
  }

  /** Take a tool: what is drawn next is a `point`, a `bbox`, a `circle` or a `polygon`; null: none. */
  take(tool) {
    Object.assign(this, { tool, corners: [], from: null });
    this.sketch.clearLayers();
    for (const handler of ["dragging", "doubleClickZoom", "boxZoom"]) this.map[handler][tool ? "disable" : "enable"]();
    this.map.getContainer().classList.toggle("drawing", Boolean(tool));
    this.#grip();
    this.began(tool);
  }

  /** Put a shape into the middle of what the map shows, for those who cannot draw. */
  put(kind) {
    const bounds = this.map.getBounds().pad(-0.35);
    const [from, to] = kind === "circle" ? [bounds.getCenter(), L.latLng(bounds.getNorth(), bounds.getCenter().lng)] : [bounds.getSouthWest(), bounds.getNorthEast()];
    if (kind === "point") return this.#add(drawn(kind, bounds.getCenter(), bounds.getCenter(), this.map));
    if (kind !== "polygon") return this.#add(drawn(kind, from, to, this.map));
    const corners = [bounds.getSouthWest(), bounds.getSouthEast(), bounds.getNorthEast(), bounds.getNorthWest()].map(placed);
    this.#add({ kind, rings: [corners.map(({ lat, lon }) => [lon, lat])] });
  }

  /** Take back the last corner of the polygon that is being drawn. */
  undo() {
    this.corners.pop();
    this.#sketch();
  }

  /** Close the polygon that is being drawn, if it has three corners. */
  close() {
    if (this.corners.length < 3) return;
    const rings = [this.corners.map(placed).map(({ lat, lon }) => [lon, lat])];
    this.#add({ kind: "polygon", rings });
  }

  // -- with a mouse or a finger ----------------------------------------------------------------------------------------------

  #down(event) {
    if (!this.tool || !event.isPrimary || event.button || event.target.closest(".leaflet-control")) return;
    event.preventDefault();
    this.down = [event.clientX, event.clientY];
    this.from = this.map.mouseEventToLatLng(event);
  }

  #move(event) {
    const to = this.map.mouseEventToLatLng(event);
    if (this.tool === "polygon") return this.corners.length && this.#sketch(to);
    if (!this.from) return;
    this.sketch.clearLayers();
    for (const layer of layersOf(drawn(this.tool, this.from, to, this.map), this.#look(true))) layer.addTo(this.sketch);
  }

  #up(event) {
    const { from, down } = this;
    if (!from) return;
    this.from = null;
    const to = this.map.mouseEventToLatLng(event);
    const moved = Math.hypot(event.clientX - down[0], event.clientY - down[1]);
    if (this.tool === "polygon") return moved <= CLICK && this.#corner(to);
    if (this.tool !== "point" && moved <= CLICK) return this.sketch.clearLayers(); // nothing was drawn
    this.#add(drawn(this.tool, from, to, this.map));
  }

  #corner(at) {
    const [point, ...corners] = [at, ...this.corners].map((one) => this.map.latLngToContainerPoint(one));
    const near = (other, pixels) => other && point.distanceTo(other) <= pixels;
    const isLast = near(corners.at(-1), SAME);
    if (corners.length >= 3 && (isLast || near(corners[0], FIRST))) return this.close();
    if (!isLast) this.corners.push(at);
    this.#sketch();
  }

  #key(event) {
    if (event.target.matches("input, textarea, select")) return;
    const undo = event.key === "Backspace" || (event.key === "z" && (event.ctrlKey || event.metaKey));
    if (event.key === "Escape") this.take(null);
    else if (this.tool === "polygon" && undo) this.undo();
    else if (this.tool === "polygon" && event.key === "Enter" && !event.target.matches("button")) this.close();
    else return;
    event.preventDefault();
  }

  /** Show the polygon that is being drawn, up to the mouse. */
  #sketch(to) {
    this.sketch.clearLayers();
    const look = this.#look(true);
    L.polyline([...this.corners, ...(to ? [to] : [])], look).addTo(this.sketch);
    if (this.corners.length > 2) L.polygon(this.corners, { ...look, stroke: false }).addTo(this.sketch);
    this.corners.forEach((corner, i) => L.circleMarker(corner, { ...look, dashArray: null, radius: i ? 4 : 7, fillOpacity: 1, fillColor: colour("--ground") }).addTo(this.sketch));
    this.began(this.tool); // how many corners there are decides what can be done
  }

  #add(shape) {
    this.shapes = shape.kind === "point" ? [shape] : [...this.shapes.filter(({ kind }) => kind !== "point"), shape];
    this.take(null);
    this.#show();
    this.changed(this.shapes);
  }

  // -- what was drawn ----------------------------------------------------------------------------------------------------------

  #look(dashed = false) {
    return { renderer: this.renderer, pane: "shapes", className: "drawn", weight: 2, dashArray: dashed ? "5 4" : null, color: colour("--here"), fillColor: colour("--here"), fillOpacity: 0.12, interactive: false };
  }

  #show() {
    this.layers.clearLayers();
    for (const shape of this.shapes) for (const layer of shape.bad ? [] : layersOf(shape, this.#look())) layer.addTo(this.layers);
  }

  /** Show the handles; those that are there stay as long as they are of the same corners, so that one that has the keyboard keeps it. */
  #grip() {
    const wanted = this.tool ? [] : this.shapes.filter(({ bad }) => !bad).flatMap((shape, i) => handlesOf(shape).map((handle) => ({ ...handle, number: i })));
    const taken = wanted.slice(0, MOST_HANDLES);
    const name = (handles) => handles.map((handle) => `${handle.number} ${handle.name} ${Boolean(handle.remove)}`).join();
    if (name(taken) !== name(this.handles)) {
      this.grips.clearLayers();
      this.markers = taken.map((_, i) => this.#marker(i));
    }
    this.handles = taken;
    taken.forEach(({ at, name: what, remove }, i) => {
      const { lat, lon } = at();
      this.markers[i].setLatLng([lat, lon]).addTo(this.grips);
      this.markers[i].getElement().setAttribute("aria-label", `${what}: arrow keys move it${remove ? ", Delete removes it" : ""}`);
    });
  }

  #marker(i) {
    const marker = L.marker([0, 0], { pane: "handles", draggable: true, icon: L.divIcon({ className: "handle", iconSize: [14, 14] }) });
    marker.on("drag", () => this.#moved(i, marker.getLatLng()));
    marker.on("dragend", () => this.#grip());
    marker.on("keydown", ({ originalEvent: event }) => {
      const { remove } = this.handles[i];
      if (ARROWS[event.key]) {
        const point = this.map.project(marker.getLatLng()).add(ARROWS[event.key]); // not rounded to pixels: an arrow moves in one direction
        this.#moved(i, this.map.unproject(point));
        this.#grip();
      } else if (event.key === "Delete" && remove) {
        remove();
        this.#show();
        this.#grip();
        this.changed(this.shapes);
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
    return marker;
  }

  #moved(i, latlng) {
    this.handles[i].move(placed(latlng));
    this.#show();
    this.handles.forEach(({ at }, j) => j === i || this.markers[j].setLatLng([at().lat, at().lon]));
    this.changed(this.shapes);
  }
}
