import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headgate_spark.alterations import alter, look
from headgate_spark.entries import STAGING, Entry, ManifestError, published_path, staged_path
from headgate_spark.files import LocalFiles
from headgate_spark.manifest import Manifest


class GroupLog:
    """The offsets of a group."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], int] = {}

    def committed(self, _group: str) -> Mapping[tuple[str, int], int]:
        return dict(self.offsets)

    def commit_unguarded(self, _group: str, offsets: Mapping[tuple[str, int], int | None]) -> None:
        for place, offset in offsets.items():
            if offset is None:
                self.offsets.pop(place, None)
            else:
                self.offsets[place] = offset


def made(folder: Path) -> tuple[Manifest, LocalFiles, GroupLog]:
    files, log = LocalFiles(folder), GroupLog()
    return Manifest(files, log, "g"), files, log  # type: ignore[arg-type]


_TOKENS = iter(range(10**6))


def staged(folder: Path, start: int, end: int, **more: Any) -> Entry:
    path = staged_path("t", 0, start, 0, f"{next(_TOKENS):032x}", "json")
    (folder / STAGING).mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(f"{start}-{end}")
    final = published_path("t", 0, start, 0, more.get("era", 0), "json")
    return Entry("t", 0, start, end, ((path, final),), end - start, **more)


def test_a_commit_publishes_files_and_moves_the_group(tmp_path: Path) -> None:
    manifest, files, log = made(tmp_path)
    entry = staged(tmp_path, 0, 10, columns={"a": "long"})
    assert manifest.commit(entry)
    assert (tmp_path / "t-0-0-0.json").read_text() == "0-10"
    assert log.offsets == {("t", 0): 10}
    assert look(files).entries(("t", 0)) == [entry]
    assert list(files.list("_headgate")) == ["staging", "t-0-0.json"]


def test_of_two_processes_one_gives_a_column_its_type(tmp_path: Path) -> None:
    """The processes may write different partitions, so the chain of entries alone would not tell
    them of each other."""
    (first, _, _), (second, _, _) = made(tmp_path), made(tmp_path)
    assert first.pin({"a": "integer", "b": "null"}) == {}
    assert second.pin({"a": "long", "b": "string"}) == {}, "both are int64"
    assert second.pin({"a": "double", "b": "string"}) == {"a": "integer"}
    assert first.pin({"b": "double"}) == {"b": "string"}
    assert not list((tmp_path / "_headgate").glob(".*"))


def test_types_are_free_again_once_offsets_were_altered(tmp_path: Path) -> None:
    manifest, files, _ = made(tmp_path)
    assert manifest.pin({"a": "integer"}) == {}
    alter(files, {("t", 0): 0})
    later = made(tmp_path)[0]
    later.resume([("t", 0)])
    assert later.pin({"a": "double"}) == {}
    assert manifest.pin({"a": "integer"}) == {}


def test_the_second_at_a_start_loses_and_drops_its_files(tmp_path: Path) -> None:
    manifest, files, _ = made(tmp_path)
    first, second = staged(tmp_path, 0, 10), staged(tmp_path, 0, 20)
    assert manifest.commit(first)
    assert not manifest.commit(second)
    assert files.list(STAGING) == []
    assert (tmp_path / "t-0-0-0.json").read_text() == "0-10"


@pytest.mark.parametrize("start", [0, 4, 11])
def test_a_batch_must_begin_where_the_chain_ends(tmp_path: Path, start: int) -> None:
    """A zombie may have planned from offset 0 before a user set the group to 3."""
    manifest, files, _ = made(tmp_path)
    assert manifest.commit(staged(tmp_path, 3, 10))
    assert not manifest.commit(staged(tmp_path, start, 20))
    assert len(look(files).entries(("t", 0))) == 1


def test_resume_is_from_the_chain_then_from_the_group(tmp_path: Path) -> None:
    manifest, _, log = made(tmp_path)
    log.offsets[("t", 0)] = 3
    assert manifest.resume([("t", 0), ("t", 1)]) == {("t", 0): 3, ("t", 1): 0}
    assert manifest.commit(staged(tmp_path, 3, 9))
    log.offsets[("t", 0)] = 3  # a late process set it back
    assert manifest.resume([("t", 0)]) == {("t", 0): 9}
    assert log.offsets[("t", 0)] == 9


def test_who_finds_an_entry_rolls_it_forward(tmp_path: Path) -> None:
    manifest, files, log = made(tmp_path)
    entry = staged(tmp_path, 0, 10)
    files.create(entry.path, entry.to_json())  # then its writer was killed
    assert manifest.resume([("t", 0)]) == {("t", 0): 10}
    assert (tmp_path / "t-0-0-0.json").read_text() == "0-10"
    assert log.offsets == {("t", 0): 10}


def test_leftovers_go_once_they_can_never_be_committed(tmp_path: Path) -> None:
    manifest, files, _ = made(tmp_path)
    leftover, other = staged(tmp_path, 0, 5), staged(tmp_path, 0, 10)
    assert manifest.drop_leftovers() == 0  # the writer of either may be frozen
    assert manifest.commit(other)
    assert manifest.drop_leftovers() == 1
    assert not files.exists(leftover.files[0][0])


def test_topics_whose_names_end_like_partitions_are_not_mixed_up(tmp_path: Path) -> None:
    manifest, files, _ = made(tmp_path)
    assert manifest.commit(Entry("t-0", 1, 0, 5, ()))
    assert look(files).entries(("t", 0)) == []
    assert manifest.resume([("t-0", 1)]) == {("t-0", 1): 5}


def test_a_foreign_entry_is_refused_by_name(tmp_path: Path) -> None:
    manifest, files, _ = made(tmp_path)
    files.create("_headgate/t-0-0.json", b'{"version": 99}')
    with pytest.raises(ManifestError, match=r"_headgate/t-0-0\.json has version 99, expected 1"):
        manifest.resume([("t", 0)])


def test_creation_is_exclusive_and_whole(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    assert files.create("a/b", b"one")
    assert not files.create("a/b", b"two")
    assert files.read("a/b") == b"one"
    assert files.list("a") == ["b"]


def test_a_file_of_another_that_stands_where_a_batch_is_published_is_told(tmp_path: Path) -> None:
    """Taken for the batch's own it would hide the batch for ever: its records would be lost."""
    manifest, files, log = made(tmp_path)
    (tmp_path / "t-0-0-0.json").write_text("of an earlier use of this folder")
    entry = staged(tmp_path, 0, 10)
    with pytest.raises(ManifestError, match=r"t-0-0-0\.json is there and is none of"):
        manifest.commit(entry)
    assert files.list("_headgate") == ["staging"]  # not committed
    assert log.offsets == {}
    files.create(entry.path, entry.to_json())  # as if it had come in between
    with pytest.raises(ManifestError, match=r"move it away"):
        manifest.resume([("t", 0)])
    (tmp_path / "t-0-0-0.json").unlink()
    assert manifest.resume([("t", 0)]) == {("t", 0): 10}
    assert (tmp_path / "t-0-0-0.json").read_text() == "0-10"


def test_the_group_moves_only_when_the_published_names_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That holds also if another process has renamed the files. It may have been killed before it
    synced, and files before the group's offset are not checked again."""
    manifest, files, log = made(tmp_path)
    entry = staged(tmp_path, 0, 10)
    files.create(entry.path, entry.to_json())
    files.rename(*entry.files[0])
    synced: list[str] = []

    def sync(folder: str) -> None:
        assert log.offsets == {}
        synced.append(folder)

    monkeypatch.setattr(files, "sync", sync)
    assert manifest.resume([("t", 0)]) == {("t", 0): 10}
    assert synced == ["", STAGING]
    assert log.offsets == {("t", 0): 10}


def test_a_creation_whose_answer_was_lost_is_known_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system repeats the request and says that the name is there. Taken for a lost
    race, the files of a committed batch would be dropped."""
    files = LocalFiles(tmp_path)
    link = os.link

    def repeated(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", repeated)
    assert files.create("a/b", b"one")


def test_the_last_entry_is_checked_where_the_group_has_no_offset(tmp_path: Path) -> None:
    """A log that was made anew has none. What is found then leaves the group without one."""
    entry = staged(tmp_path, 0, 10, last_record=(8, 1_700_000_000_000))
    made(tmp_path)[0].commit(entry)
    manifest, files, log = made(tmp_path)

    def refuse(found: Entry) -> None:
        assert found == entry
        raise ManifestError("another log")

    for _ in range(2):
        with pytest.raises(ManifestError, match="another log"):
            manifest.resume([("t", 0), ("t", 1)], refuse)
    assert log.offsets == {}
    assert manifest.resume([("t", 0)], lambda _: None) == {("t", 0): 10}
    assert manifest.resume([("t", 0)], refuse) == {("t", 0): 10}, "the group has an offset"
    alter(files, {("t", 0): 0})
    assert made(tmp_path)[0].resume([("t", 0)], refuse) == {("t", 0): 0}, "altered by a user"
