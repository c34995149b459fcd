// The names of places: capitals and great cities, in a file that comes with the pages, so that nobody else learns what is looked for.

import { getFrom } from "/static/api.js";

/** Return a name as it is compared: small letters without accents. */
const plain = (name) => name.normalize("NFD").replace(/\p{M}/gu, "").replace(/[’'`]/g, "").toLowerCase();

export class Gazetteer {
  /** @param places those with most people first: `{name, country, lat, lon}`. */
  constructor(places) {
    this.places = places;
    this.plain = places.map(({ name }) => plain(name));
  }

  static async open() {
    const { countries, names, codes, lat, lon } = await getFrom("/static/dskype/vendor/world/cities.json");
    return new Gazetteer(names.map((name, i) => ({ name, country: countries[codes.slice(2 * i, 2 * i + 2)] ?? "", lat: lat[i] / 100, lon: lon[i] / 100 })));
  }

  /** Return places whose names begin with some letters, or, after these, have a word that does; and the place that is written as `lat, lon`. */
  find(text, most = 8) {
    const [, lat, lon] = /^\s*(-?\d+(?:\.\d+)?)\s*[,\s]\s*(-?\d+(?:\.\d+)?)\s*$/.exec(text) ?? [];
    if (lat !== undefined && Math.abs(lat) <= 90 && Math.abs(lon) <= 180) return [{ name: `${Number(lat)}, ${Number(lon)}`, country: "a place", lat: Number(lat), lon: Number(lon) }];
    const [letters, country] = plain(text).split(",").map((part) => part.trim());
    if (!letters) return [];
    const [first, later] = [[], []];
    for (let i = 0; i < this.plain.length && first.length < most; i++) {
      if (country && !plain(this.places[i].country).startsWith(country)) continue;
      if (this.plain[i].startsWith(letters)) first.push(this.places[i]);
      else if (later.length < most && this.plain[i].includes(` ${letters}`)) later.push(this.places[i]);
    }
    return [...first, ...later].slice(0, most);
  }
}
