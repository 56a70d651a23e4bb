"""Files that the task is not allowed to look at: each is named, and read once it may be."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.task.directory_runs import run
from support.task.source_tasks import values

from headgate_connectors.files import file_tree
from headgate_connectors.files.file_tree import Entry, LocalTree


class Barred:
    """An entry of a folder that lets nobody pass, as `os.DirEntry` shows it. Tests run as root,
    too, whom no mode of a folder stops."""

    def __init__(self, entry: Entry, *, is_link: bool) -> None:
        self._entry, self._is_link, self.name = entry, is_link, entry.name

    def inode(self) -> int:
        return self._entry.inode()

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._entry.is_dir(follow_symlinks=follow_symlinks)

    def is_symlink(self) -> bool:
        return self._is_link

    def is_file(self) -> bool:
        if self._is_link:
            self.stat()
        return True

    def stat(self) -> os.stat_result:
        raise PermissionError(13, "Permission denied", self.name)


@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_that_lets_nobody_pass(
    tmp_path: Path, is_link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.txt").write_text("b\n")
    subject, barred = run(tmp_path), {"b.txt"}
    seen = LocalTree.scan

    def scan(tree: LocalTree, folder: str) -> list[Any]:
        entries = seen(tree, folder)
        return [Barred(one, is_link=is_link) if one.name in barred else one for one in entries]

    monkeypatch.setattr(file_tree.LocalTree, "scan", scan)
    assert values(subject.rest()) == ["a"]
    (told,) = subject.context.quarantined
    assert told.endswith("b.txt: [Errno 13] Permission denied: 'b.txt'")
    barred.clear()
    assert values(subject.rest()) == ["b"]
    barred.add("b.txt")
    with (tmp_path / "b.txt").open("a") as file:
        file.write("more\n")
    assert subject.rest() == []
    assert len(subject.context.quarantined) == 1
    barred.clear()
    assert values(subject.rest()) == ["more"]
    assert not subject.context.quarantined
