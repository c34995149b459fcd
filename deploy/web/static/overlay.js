// A layer of a map that is one canvas, as large as the map, and drawn again when the map moves or shows other content. Leaflet is `L`.

export const Overlay = L.Layer.extend({
  initialize(zIndex) {
    this.zIndex = zIndex;
  },

  onAdd(map) {
    const pane = map.createPane(`overlay-${this.zIndex}`);
    Object.assign(pane.style, { zIndex: this.zIndex, pointerEvents: "none" });
    this.canvas = L.DomUtil.create("canvas", "leaflet-zoom-hide", pane);
    this.canvas.setAttribute("aria-hidden", "true");
    map.on("move moveend zoomend viewreset resize", this.draw, this);
    this.draw();
  },

  onRemove(map) {
    map.off("move moveend zoomend viewreset resize", this.draw, this);
    this.canvas.parentNode.remove();
  },

  /** Draw before the browser shows the page next, once for all changes until then. */
  draw() {
    this.wanted ??= requestAnimationFrame((now) => {
      this.wanted = null;
      if (this.canvas?.isConnected) this.redraw(now);
    });
  },

  redraw(now) {
    const { x, y } = this._map.getSize();
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(x * scale) || this.canvas.height !== Math.round(y * scale)) {
      Object.assign(this.canvas, { width: Math.round(x * scale), height: Math.round(y * scale) });
      Object.assign(this.canvas.style, { width: `${x}px`, height: `${y}px` });
    }
    L.DomUtil.setPosition(this.canvas, this._map.containerPointToLayerPoint([0, 0]));
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, x, y);
    this.paint(context, { x, y }, now);
  },
});
