// A layer of a map that names what is under the mouse. Leaflet is `L`.

import { Overlay } from "/static/dskype/overlay.js";
import { tip } from "/static/dskype/world.js";

const NEAR = 7; // pixels from the mouse to what it names

/** What extends it has `named(near)`, which returns the place and the lines of what is near, or null. */
export const Named = Overlay.extend({
  onAdd(map) {
    Overlay.prototype.onAdd.call(this, map);
    this.tooltip = L.tooltip({ direction: "top", offset: [0, -6] });
    map.on("mousemove", this.point, this);
    map.on("mouseout movestart", () => this.tooltip.remove());
  },

  /** Name what is under the mouse, at most once for each frame. */
  point({ containerPoint: { x, y } }) {
    this.pointing ??= requestAnimationFrame(() => {
      this.pointing = null;
      if (!this._map || this._map.getContainer().classList.contains("drawing")) return this.tooltip.remove();
      const found = this.named((place) => {
        const at = this._map.latLngToContainerPoint(place);
        return Math.abs(at.x - x) <= NEAR && Math.abs(at.y - y) <= NEAR;
      });
      if (!found) return this.tooltip.remove();
      this.tooltip.setLatLng(found.at).setContent(tip(...found.lines)).addTo(this._map);
    });
  },
});
