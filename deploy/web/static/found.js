// The answer to a search: what the window has now, as a list and on the map. Leaflet is `L`.

import { getFrom } from "/static/api.js";
import { count, el, show, table } from "/static/dom.js";
import { colour } from "/static/dskype/colours.js";
import { path } from "/static/dskype/page.js";
import { columns, lines, where, words } from "/static/dskype/results.js";
import { layersOf, shapesOf } from "/static/dskype/shapes.js";
import { tip } from "/static/dskype/world.js";

const FIELDS = ["text", "keywords", "lat", "lon", "k", "alpha", "distance", "scale_m", "where", "bbox", "region", "expression"];

export class Found {
  /** @param map the map. @param renderer draws pins. */
  constructor(map, renderer) {
    Object.assign(this, { map, renderer, asked: 0 });
    this.pins = L.layerGroup().addTo(map);
    document.getElementById("forget").addEventListener("click", () => this.clear());
  }

  clear() {
    this.asked += 1; // an answer that is on its way comes too late
    this.pins.clearLayers();
    document.getElementById("found").hidden = true;
  }

  /** Search the window for what a subscription with these fields would have found, and show it. */
  async search(subscription) {
    this.clear();
    const { asked } = this;
    const fields = Object.fromEntries(FIELDS.filter((name) => subscription[name] !== undefined).map((name) => [name, subscription[name]]));
    const answer = await getFrom(path("search", { fields: JSON.stringify(fields) }));
    if (asked === this.asked) this.#show({ ...fields, type: subscription.type }, answer);
  }

  #show(fields, { matches, total, watermark }) {
    const isTopk = total === undefined;
    document.getElementById("found").hidden = false;
    const many = isTopk ? `the best ${count(matches.length)}` : `the newest ${count(matches.length)} of ${count(total)}`;
    show("asked", el("p", { role: "status" }, `${words(fields)} ${where(fields)}: ${many}, as of watermark ${watermark}`));
    show("matches", table(columns({ isTopk, watermark }), matches, "nothing in the window"));
    const own = { pane: "pins", renderer: this.renderer };
    const [here, ground, first, pin] = ["--here", "--ground", "--first", "--pin"].map(colour);
    const mine = { ...own, className: "subscription", weight: 2, dashArray: "4 4", color: here, fillOpacity: 0, interactive: false };
    for (const shape of shapesOf(fields)) for (const layer of layersOf(shape, mine)) layer.addTo(this.pins);
    for (const match of matches.filter(({ lat }) => lat !== undefined).reverse()) {
      const look = { ...own, className: "pin found", radius: 6, weight: 1.5, color: ground, fillColor: match.rank === 1 && isTopk ? first : pin, fillOpacity: 1 };
      L.circleMarker([match.lat, match.lon], look).bindTooltip(tip(...lines(match, watermark))).addTo(this.pins);
    }
  }
}
