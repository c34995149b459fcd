"""Files that another user may have written."""

import os

import pytest

from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.core.ownership import close_to_others, fault_of, foreign_in, is_ours
from dskype.topology.errors import TopologyError


def test_what_others_can_write_is_not_ours(tmp_path):
    assert fault_of(tmp_path) is None and is_ours(tmp_path) and fault_of(tmp_path / "missing") is None and not is_ours(tmp_path / "missing")
    for mode in (0o720, 0o702, 0o777):
        tmp_path.chmod(mode)
        assert "can be written by others" in (fault_of(tmp_path) or "") and not is_ours(tmp_path)
    close_to_others(tmp_path)
    assert is_ours(tmp_path)
    tmp_path.chmod(0o777)
    (tmp_path / "x").touch()
    close_to_others(tmp_path)
    assert not is_ours(tmp_path), "somebody may have put x there"


def test_a_file_of_another_user_is_found_at_any_depth_and_links_are_not_followed(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("/")
    assert foreign_in(tmp_path) is None
    monkeypatch.setattr(os, "getuid", lambda uid=os.getuid(): uid + 1)
    assert foreign_in(tmp_path) == f"{tmp_path / 'a'} belongs to user {os.getuid() - 1}"


def test_state_that_others_can_write_is_refused(tmp_path):
    FileSnapshotStore(tmp_path / "state").create()
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(TopologyError, match=r"another user may have written is not used.*can be written by others"):
        FileSnapshotStore(tmp_path / "state").create()


@pytest.mark.parametrize("folder", [True, False])
def test_what_everybody_can_write_in_a_folder_that_everybody_can_enter_may_be_anybodys(tmp_path, folder):
    tmp_path.chmod(0o755)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    if not folder:
        inner /= "c"
        inner.write_text("")
    inner.chmod(0o757)
    assert foreign_in(tmp_path) == f"{inner} can be written by everybody, mode {'d' if folder else '-'}rwxr-xrwx"
    tmp_path.chmod(0o700)
    assert foreign_in(tmp_path) is None
