"""Partitioning of hypergraphs: few parts for each edge, even parts, and the same answer in every process."""

import subprocess
import sys
import zlib

import numpy as np
import pytest

from dskype.deploy.lab.ps2stream.hypergraphs import partition_hypergraph
from dskype.topology.errors import IllegalArgumentException


def groups(seed=68):
    """Return messages with four words of one of four groups each: vertices, edges, weights."""
    edges = np.repeat(np.arange(200), 4)
    vertices = edges % 4 * 10 + np.random.default_rng(seed).integers(0, 10, len(edges))
    return vertices, edges, np.bincount(vertices, minlength=40).astype(float)


def chain(n):
    """Return a hypergraph in which each vertex has an edge to the next."""
    return np.repeat(np.arange(n), 2)[1:-1], np.repeat(np.arange(n - 1), 2)


def sums(part_of, weights, parts):
    assert part_of.dtype == np.int64 and part_of.shape == (len(weights),) and (part_of >= 0).all() and (part_of < parts).all()
    return np.bincount(part_of, weights, parts)


def test_groups_of_words_are_apart():
    vertices, edges, weights = groups()
    part_of = partition_hypergraph(vertices, edges, weights, 4)
    assert len(np.unique(edges * 4 + part_of[vertices])) == 200
    assert sums(part_of, weights, 4).max() <= 1.1 * weights.sum() / 4


def test_order_and_repetitions_of_pins_do_not_count():
    vertices, edges, weights = groups()
    expected = partition_hypergraph(vertices, edges, weights, 7)
    order = np.random.default_rng(1).permutation(len(edges) * 2) % len(edges)
    assert np.array_equal(partition_hypergraph(vertices[order], edges[order], weights, 7), expected)


def test_a_vertex_that_is_too_heavy_is_alone_and_the_others_are_even():
    vertices, edges = chain(60)
    weights = np.ones(60)
    weights[[3, 40]] = 500.0, 20.0
    part_of = partition_hypergraph(vertices, edges, weights, 8)
    found = sums(part_of, weights, 8)
    assert (part_of == part_of[3]).sum() == (part_of == part_of[40]).sum() == 1
    assert 0 < found.min() and np.sort(found)[-3] <= 1.1 * 58 / 6


@pytest.mark.parametrize("scale", [1e-12, 0.3, 1e12])
def test_weights_are_any_floats(scale):
    (vertices, edges), weights = chain(100), np.random.default_rng(2).random(100) * scale
    assert sums(partition_hypergraph(vertices, edges, weights, 5), weights, 5).max() <= 1.1001 * weights.sum() / 5


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_vertices_without_edges_or_weight_are_spread(weight):
    no = np.zeros(0, np.int64)
    assert np.bincount(partition_hypergraph(no, no, np.full(40, weight), 4), minlength=4).tolist() == [10] * 4
    weights = np.r_[np.zeros(50), np.full(50, 3.0)]
    assert sums(partition_hypergraph(*chain(100), weights, 5), weights, 5).max() <= 1.1 * 30


@pytest.mark.parametrize(("n", "parts"), [(0, 4), (1, 1), (1, 4), (3, 4), (4, 4), (30, 1)])
def test_few_vertices_or_parts(n, parts):
    weights = np.arange(1.0, n + 1)
    vertices, edges = chain(n) if n > 1 else (np.zeros(n, np.int64), np.zeros(n, np.int64))
    found = sums(partition_hypergraph(vertices, edges, weights, parts), weights, parts)
    assert (found > 0).sum() == min(n, parts)


def test_the_parts_are_the_same_in_every_process_and_nothing_is_printed():
    def checksum(*hypergraph):
        return zlib.crc32(partition_hypergraph(*hypergraph, 7).tobytes())

    # Another one before it here, and once more in a process that is forked when the library has run.
    code = (
        "import os, zlib; from dskype.deploy.lab.ps2stream.hypergraphs import partition_hypergraph; from tests.deploy.lab.ps2stream.test_hypergraphs import groups\n"
        "os.write(1, b'%d\\n' % zlib.crc32(partition_hypergraph(*groups(), 7).tobytes()))\n"
        "if not (child := os.fork()): os.write(1, b'%d\\n' % zlib.crc32(partition_hypergraph(*groups(), 7).tobytes())); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    checksum(*groups(69))
    here = checksum(*groups())
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (run.stdout, run.stderr) == (f"{here}\n{here}\n", "")


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mtkahypar", None)
    with pytest.raises(IllegalArgumentException, match=r"needs the package mtkahypar.*given: .*hint: pip install '/path/to/dskype\[bench\]'"):
        partition_hypergraph(*groups(), 4)
