"""Write the state that this version leaves, for the tests of later versions: ``python -m tests.golden.make``.

Run it once per version, before its release; files of earlier versions stay as they are. Run again it writes files that
differ in measured times only, unless formats or components have changed.

``python -m tests.golden.make unreleased`` writes the scenes that the newest release does not have, into a folder of that name: what users of the present
sources keep is to be read by the next version, too. Before that is released, delete the folder.
"""

from __future__ import annotations

import importlib.metadata
import sys

from dskype.deploy.machine import paths

paths.export_numba_cache()  # before anything imports numba

from tests.golden.scenes import HERE, UNRELEASED, new_scenes, scenes  # noqa: E402

_MOST_BYTES = 300_000


def main() -> None:
    """Write the files of this version."""
    released = sys.argv[1:] != [UNRELEASED]
    folder = HERE / (importlib.metadata.version("dskype") if released else UNRELEASED)
    made = scenes() if released else new_scenes()
    size = sum(map(len, made.values()))
    assert size < _MOST_BYTES, f"the state of a version is kept for good; expected less than {_MOST_BYTES} bytes, given: {size}"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.state"):
        old.unlink()
    for name, data in made.items():
        (folder / f"{name}.state").write_bytes(data)
    print(f"{folder}: {len(made)} files, {size} bytes")


if __name__ == "__main__":
    main()
