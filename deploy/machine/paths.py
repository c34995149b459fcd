"""Where the product keeps its files. No other module builds such a path.

============================  ===============================================================
``home()``                    ``$DSKYPE_HOME``, else ``$XDG_CACHE_HOME/dskype``, else ``~/.cache/dskype``
``jars_dir()``                connector and broker jars, kept for good
``spark_classes_dir()``       our classes for Spark's queries, compiled here
``class_archives_dir()``      class archives of Spark's and the broker's JVM
``numba_cache_dir()``         compiled kernels
``service_dir()``             the service of ``dskype up``: ``$XDG_DATA_HOME/dskype``, else ``~/.local/share/dskype``
``webhooks_dir()``            what paced webhooks have to be told later: ``webhooks`` in that folder
``scratch_dir()``             temporary files: ``$DSKYPE_HOME/scratch`` if that is set, else ``<tmp>/dskype-<uid>``
============================  ===============================================================

A home that cannot be written (read-only image, user without a home) is replaced by a folder below the temp folder,
with one warning.
"""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from dskype.deploy.machine.errors import OptionError
from dskype.topology.core.atomic_files import replace_file
from dskype.topology.core.ownership import close_to_others, fault_of, foreign_in

HOME_VARIABLE = "DSKYPE_HOME"

_warned: set[str] = set()


class HomeNotWritableWarning(UserWarning):
    """The folder for caches cannot be written; a temporary folder is used instead."""


def configured_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the home folder that the environment names, without touching the disk.

    :raises OptionError: ``DSKYPE_HOME`` is a relative path, which could mean another folder in every process.
    """
    env = os.environ if environ is None else environ
    given = env.get(HOME_VARIABLE, "")
    if given:
        path = Path(os.path.expanduser(given))
        if not path.is_absolute():
            raise OptionError(f"{HOME_VARIABLE} must be an absolute path, given: {given!r}", fix=f"export {HOME_VARIABLE}={Path(given).resolve()}")
        return path
    xdg = env.get("XDG_CACHE_HOME", "")
    if xdg and os.path.isabs(xdg):
        return Path(xdg) / "dskype"
    user_home = env.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(user_home):  # a system user without a home: "~" stays as it is
        return _temp_root() / "home"
    return Path(user_home) / ".cache" / "dskype"


def home(environ: Mapping[str, str] | None = None) -> Path:
    """Create and return the home folder. If it cannot be written, return a private temporary folder, with one warning.

    :raises OptionError: another user owns the folder, or can write it; jars and compiled kernels are run from there.
    """
    path = configured_home(environ)
    if make_writable(path):
        check_ours(path)
        return path
    fallback = _temp_root() / "home"
    fallback.mkdir(mode=0o700, parents=True, exist_ok=True)
    if str(path) not in _warned:
        _warned.add(str(path))
        warnings.warn(
            f"{path} cannot be written; using {fallback}. Set {HOME_VARIABLE} to a writable folder to keep caches.", HomeNotWritableWarning, stacklevel=2
        )
    return fallback


def jars_dir() -> Path:
    """Return the folder that newly fetched jars go to."""
    return _made(home() / "jars")


def readable_jars_dirs() -> list[Path]:
    """Return the folders to look for jars in, including a read-only home that is part of an image."""
    dirs = [jars_dir()]
    configured = configured_home() / "jars"
    if configured not in dirs and configured.is_dir():
        dirs.append(configured)
    return dirs


def class_archives_dir() -> Path:
    """Return the folder of the class archives of Spark and of the broker; who writes one makes it."""
    return home() / "cds"


def spark_classes_dir() -> Path:
    """Return the folder of our classes for Spark's queries; who compiles them makes it."""
    return home() / "spark-classes"


def derived_dirs() -> list[Path]:
    """Return the folders of what is fetched or made once and is the same for all topologies: jars, Spark's classes, class archives."""
    return [jars_dir(), _made(spark_classes_dir()), _made(class_archives_dir())]


def numba_cache_dir() -> Path:
    """Return the folder of compiled kernels."""
    return _made(home() / "numba")


def export_numba_cache(environ: MutableMapping[str, str] | None = None) -> Path:
    """Set Numba's cache folder to ours unless the user has chosen one. Call this before numba is imported."""
    env = os.environ if environ is None else environ
    return Path(env.setdefault("NUMBA_CACHE_DIR", str(numba_cache_dir())))


def scratch_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder for temporary brokers and topologies, which may be swept.

    It is on the local temporary disk, because the home may be a network folder. If ``DSKYPE_HOME`` is set, everything is below that.
    """
    env = os.environ if environ is None else environ
    if env.get(HOME_VARIABLE):
        return _made(home(env) / "scratch")
    return _temp_root()


def service_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of ``dskype up`` unless another one is named; it is not created. It is no cache: nobody may sweep it."""
    env = os.environ if environ is None else environ
    given = env.get("XDG_DATA_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~")) / ".local" / "share") / "dskype"


def webhooks_dir() -> Path:
    """Return the folder of ``dskype webhooks`` unless another one is named; it is not created. It is no cache: nobody may sweep it."""
    return service_dir() / "webhooks"


def make_writable(path: Path) -> bool:
    """Create ``path`` if it is missing, and tell whether files can be created in it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def write_whole(path: Path, data: bytes | str, mode: int | None = None) -> None:
    """Replace a file as :func:`~dskype.topology.core.atomic_files.replace_file` does.

    :param data: the content; text is written as UTF-8.
    """
    with replace_file(path, mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def check_ours(folder: Path, files: Sequence[str] = ()) -> None:
    """Refuse a folder if another user may have written what it holds. It may be missing; an empty one that others can write is closed to them.

    :param files: names in it that are refused likewise, because what they hold decides what is run.
    :raises OptionError: it, or one of the files, belongs to another user, or others can write it.
    """
    folder = folder.resolve()  # a link to the folder may be anybody's who may write where it lies; what counts is what is used
    if folder.is_dir():
        close_to_others(folder)
    for path in (folder, *(folder / name for name in files)):
        if (fault := fault_of(path)) is not None:
            raise _not_ours(folder, fault)


def check_all_ours(folder: Path) -> None:
    """Refuse a folder as :func:`check_ours` does, and if another user may have written any file in it, at any depth."""
    check_ours(folder)
    if (fault := foreign_in(folder)) is not None:
        raise _not_ours(folder, fault)


def _not_ours(folder: Path, fault: str) -> OptionError:
    return OptionError(
        f"{folder} and its files must belong to user {os.getuid()}, and nobody else may write them, for they decide what is run, given: {fault}",
        fix=f"look at what it holds, then 'chown -R' and 'chmod -R go-w' it, or use a folder of your own (for caches: {HOME_VARIABLE})",
    )


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _temp_root() -> Path:
    """Return ``<tmp>/dskype-<uid>``, owned by us alone. Another user may have created a folder or a link there before."""
    root = Path(tempfile.gettempdir()) / f"dskype-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    info = os.lstat(root)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise OptionError(
            f"{root} must be a folder owned by user {os.getuid()}, given: owner {info.st_uid}, mode {stat.filemode(info.st_mode)}",
            fix=f"set TMPDIR or {HOME_VARIABLE} to a folder of your own",
        )
    if info.st_mode & 0o022:
        os.chmod(root, 0o700)
    return root
