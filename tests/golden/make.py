"""Write the state that this version leaves, for the tests of later versions: ``python -m tests.golden.make``.

Run it once per version, before its release; files of earlier versions stay as they are. Run again it writes files that
differ in measured times only, unless formats or components have changed.
"""

from __future__ import annotations

import importlib.metadata

from dskype.deploy.machine import paths

paths.export_numba_cache()  # before anything imports numba

from tests.golden.scenes import HERE, scenes  # noqa: E402

_MOST_BYTES = 300_000


def main() -> None:
    """Write the files of this version."""
    folder = HERE / importlib.metadata.version("dskype")
    made = scenes()
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
