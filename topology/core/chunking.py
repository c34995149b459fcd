"""Cutting a blob into chunks whose borders follow from its content.

When bytes are inserted, removed or changed, the borders before and behind that place stay, relative to the content. So most
chunks of a large state that has changed a little are those of its last snapshot, wherever they have moved to. The method is
that of gear-based chunking as in FastCDC (Xia et al., USENIX ATC 2016), with one mask.
"""

from __future__ import annotations

import numpy as np

from dskype.topology.core._kernels import mix64

__all__ = ["LEAST_BYTES", "MOST_BYTES", "cut"]

LEAST_BYTES, MOST_BYTES = 128 << 10, 2 << 20
"""Bounds of a chunk's length; on average a chunk has 640 KiB."""
_MASK = np.uint64(((1 << 19) - 1) << 45)
"""The high bits of a hash, which depend on all of its 64 bytes."""
_GEAR = mix64(np.arange(1, 257, dtype=np.uint64))


def cut(data: bytes) -> list[int]:
    """Return the ends of a blob's chunks, in ascending order; the last one is its length. Takes O(n), about a second for each GB."""
    from dskype.topology.core.chunking_kernels import find_borders  # imported late: numba takes a quarter of a second, and few states are large

    return find_borders(np.frombuffer(data, np.uint8), _GEAR, _MASK, LEAST_BYTES, MOST_BYTES).tolist()
