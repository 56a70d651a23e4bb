"""Offsets of a folder are altered and reset. In each test the change dies halfway in one way, or
another process comes late.

`test_alteration_model` has all other ways.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headgate_spark.alterations import Alteration, alter, finish, look
from headgate_spark.entries import (
    STAGING,
    Entry,
    ManifestError,
    draft_prefix,
    published_path,
    staged_path,
)
from headgate_spark.file_sink import SparkFileSink
from headgate_spark.files import LocalFiles
from headgate_spark.manifest import Manifest

PLACE = ("t", 0)
OTHER = ("t", 1)


class Killed(BaseException):
    """The process is."""


class Dying(LocalFiles):
    """Ends its process before operation number `at` that changes something."""

    def __init__(self, root: Path, at: int) -> None:
        super().__init__(root)
        self._left = at

    def _step(self) -> None:
        if not self._left:
            raise Killed
        self._left -= 1

    def draft(self, prefix: str, content: bytes) -> str:
        self._step()
        return super().draft(prefix, content)

    def link(self, draft: str, target: str) -> bool:
        self._step()
        return super().link(draft, target)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)


class Folder:
    """A target folder, its group, and what a sink does there. Batches have ten records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = LocalFiles(path)
        self.group: dict[tuple[str, int], int] = {}
        self._tokens = 0

    def committed(self, _group: str) -> Mapping[tuple[str, int], int]:
        return dict(self.group)

    def commit_unguarded(self, _group: str, offsets: Mapping[tuple[str, int], int | None]) -> None:
        for place, offset in offsets.items():
            if offset is None:
                self.group.pop(place, None)
            else:
                self.group[place] = offset

    def manifest(self) -> Manifest:
        return Manifest(self.files, self, "g")  # type: ignore[arg-type]

    def staged(self, start: int, era: int = 0, place: tuple[str, int] = PLACE) -> Entry:
        self._tokens += 1
        path = staged_path(*place, start, 0, f"{self._tokens:032x}", "json")
        (self.path / STAGING).mkdir(parents=True, exist_ok=True)
        (self.path / path).write_text("".join(f"{n}\n" for n in range(start, start + 10)))
        final = published_path(*place, start, 0, era, "json")
        return Entry(*place, start, start + 10, ((path, final),), 10, era=era)

    def write(self, end: int, place: tuple[str, int] = PLACE) -> None:
        """Write all records up to `end`, as a new process of the sink does."""
        manifest = self.manifest()
        start = manifest.resume([place])[place]
        while start < end:
            assert manifest.commit(self.staged(start, manifest.era, place))
            start += 10

    def records(self, place: tuple[str, int] = PLACE) -> list[int]:
        """Return the records that readers of the folder find, sorted."""
        files = self.path.glob(f"{place[0]}-{place[1]}-*.json")
        return sorted(int(line) for file in files for line in file.read_text().splitlines())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    made.write(30)
    return made


def test_altering_removes_later_batches_with_their_files(folder: Folder) -> None:
    with pytest.raises(ManifestError, match=r"offsets 10 to 19.*choose 10 or 20"):
        alter(folder.files, {PLACE: 15})
    alter(folder.files, {PLACE: 10})
    assert folder.files.list("") == ["_headgate", "t-0-0-0.json"]
    assert folder.files.list("_headgate") == ["altered-1.json", "staging", "t-0-0.json"]
    folder.write(40)
    assert folder.records() == list(range(40))
    assert "t-0-10-0.1.json" in folder.files.list("")
    alter(folder.files, {PLACE: 60})  # passed over
    assert folder.manifest().resume([PLACE]) == {PLACE: 60}
    assert folder.group == {PLACE: 60}
    alter(folder.files, {PLACE: None})
    assert folder.files.list("") == ["_headgate"]
    assert folder.manifest().resume([PLACE]) == {PLACE: 0}


def test_of_several_partitions_all_are_altered_or_none(folder: Folder) -> None:
    """The first ones lost their files, and the group, which had them, stayed where it was."""
    folder.write(20, OTHER)
    with pytest.raises(ManifestError, match="offset 5 of t-1 lies inside"):
        alter(folder.files, {PLACE: 0, OTHER: 5})
    assert folder.records() == list(range(30))
    assert not look(folder.files).alterations


@pytest.mark.parametrize("to", [0, 10, 40, None])
def test_who_dies_halfway_has_done_all_or_nothing(tmp_path: Path, to: int | None) -> None:
    """Wherever it dies, and the group is never told: the next process of the sink finishes."""
    for at in range(100):
        folder = Folder(tmp_path / f"{at}")
        folder.write(30)
        try:
            alter(Dying(folder.path, at), {PLACE: to})
        except Killed:
            done = bool(look(folder.files).alterations)
        else:
            break
        expected = (to or 0) if done else 30
        assert folder.manifest().resume([PLACE]) == {PLACE: expected}, at
        assert folder.group == {PLACE: expected}
        assert folder.records() == list(range(min(expected, 30)))
        folder.write(60)
        assert folder.records() == [n for n in range(60) if n < 30 or n >= expected]
    assert at >= 2


def test_who_dies_halfway_is_finished_by_the_next_change(folder: Folder) -> None:
    with pytest.raises(Killed):
        alter(Dying(folder.path, 3), {PLACE: 0})
    alter(folder.files, {PLACE: 0})
    assert folder.records() == []
    assert len(look(folder.files).alterations) == 1, "there was nothing left to change"


def test_offsets_of_a_manifest_are_known_where_the_group_has_none(folder: Folder) -> None:
    """A broker forgets those of a topic that is deleted, and those that are old; and a batch may
    have been committed by a process that died before it came to the group."""
    config = {"path": str(folder.path), "topics": "t"}
    folder.write(20, ("of another connector", 0))
    assert SparkFileSink.reached_offsets(config, {}) == {PLACE: 30}
    assert SparkFileSink.reached_offsets(config, {PLACE: 7, OTHER: 5}) == {PLACE: 30, OTHER: 5}
    by_pattern = {"path": str(folder.path), "topics.regex": "[st]"}
    assert SparkFileSink.reached_offsets(by_pattern, {}) == {PLACE: 30}
    alter(folder.files, {PLACE: None})
    assert SparkFileSink.reached_offsets(config, {}) == {}
    assert SparkFileSink.reached_offsets(config, {PLACE: 30}) == {PLACE: 0}
    absent = {**config, "path": str(folder.path / "no")}
    assert SparkFileSink.reached_offsets(absent, {}) == {}
    assert not SparkFileSink.alter_offsets(absent, {PLACE: 5})
    assert not (folder.path / "no").exists(), "the group has it, and the task makes its folder"


def _before_it_stages(folder: Folder, alter_now: Callable[[], None]) -> bool:
    zombie = folder.manifest()
    zombie.resume([PLACE])
    alter_now()
    return zombie.commit(folder.staged(30))


def _before_it_drafts(folder: Folder, alter_now: Callable[[], None]) -> bool:
    return _frozen_before(folder, alter_now, "draft")


def _before_it_links(folder: Folder, alter_now: Callable[[], None]) -> bool:
    return _frozen_before(folder, alter_now, "link")


def _frozen_before(folder: Folder, alter_now: Callable[[], None], operation: str) -> bool:
    class Freezing(LocalFiles):
        pass

    def frozen(self: LocalFiles, *given: Any) -> Any:
        alter_now()
        return getattr(LocalFiles, operation)(self, *given)

    setattr(Freezing, operation, frozen)
    zombie = Manifest(Freezing(folder.path), folder, "g")  # type: ignore[arg-type]
    zombie.resume([PLACE])
    return zombie.commit(folder.staged(30))


@pytest.mark.parametrize("when", [_before_it_stages, _before_it_drafts, _before_it_links])
@pytest.mark.parametrize("to", [0, 10])
def test_a_batch_that_began_before_is_not_committed_after(
    folder: Folder, when: Callable[[Folder, Callable[[], None]], bool], to: int
) -> None:
    """The batch would stand after a hole: the records in between would be lost."""
    assert not when(folder, lambda: alter(LocalFiles(folder.path), {PLACE: to}))
    assert folder.records() == list(range(to))
    assert folder.files.list(STAGING) == []
    folder.write(40)
    assert folder.records() == list(range(40))


@pytest.mark.parametrize("when", [_before_it_drafts, _before_it_links])
def test_nor_where_the_change_was_of_another_partition(
    folder: Folder, when: Callable[[Folder, Callable[[], None]], bool]
) -> None:
    """The batch's entry would have the name of an older era than one with the same start, and both
    would count."""

    def altered_and_resumed() -> None:
        alter(LocalFiles(folder.path), {OTHER: 5})
        folder.write(40)

    assert not when(folder, altered_and_resumed)
    assert folder.records() == list(range(40))


def test_a_name_that_is_taken_back_meanwhile_is_not_called_foreign(folder: Folder) -> None:
    class Freezing(LocalFiles):
        def exists(self, path: str) -> bool:
            if path == "t-0-30-0.json":
                folder.write(40)  # another process has the same batch
            found = super().exists(path)
            if path == "t-0-30-0.json":
                alter(LocalFiles(folder.path), {PLACE: 0})
            return found

    zombie = Manifest(Freezing(folder.path), folder, "g")  # type: ignore[arg-type]
    zombie.resume([PLACE])
    assert not zombie.commit(folder.staged(30))


def test_files_are_durably_gone_before_their_entry_goes(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a machine that stops could bring back a file that no entry names."""
    done: list[str] = []
    for name in ("remove", "sync"):
        operation = getattr(folder.files, name)

        def told(path: str, operation: Any = operation, name: str = name) -> None:
            done.append(f"{name} {path}")
            operation(path)

        monkeypatch.setattr(folder.files, name, told)
    alter(folder.files, {PLACE: 20})
    created, staged, *rest = done
    assert created == "sync _headgate"
    assert staged.startswith("remove _headgate/staging/t-0-20-0-")
    assert rest == [
        "remove t-0-20-0.json",
        "sync _headgate/staging",
        "sync ",
        "remove _headgate/t-0-20.json",
        "sync _headgate",
    ]


def test_a_batch_committed_but_not_published_is_taken_back(folder: Folder) -> None:
    entry = folder.staged(30)
    folder.files.create(entry.path, entry.to_json())  # then its writer froze
    alter(folder.files, {PLACE: 10})
    folder.manifest()._publish(entry)  # and wakes up
    folder.commit_unguarded("g", {PLACE: 40})
    assert folder.records() == list(range(10))
    assert folder.manifest().resume([PLACE]) == {PLACE: 10}


def test_an_entry_that_is_made_while_drafts_go_is_taken_back_too(folder: Folder) -> None:
    entry = folder.staged(30)
    draft = folder.files.draft(draft_prefix(0), entry.to_json())

    class Freezing(LocalFiles):
        def remove(self, path: str) -> None:
            if path == draft and folder.files.link(draft, entry.path):
                folder.manifest()._publish(entry)
            super().remove(path)

    alter(Freezing(folder.path), {PLACE: 10})
    assert folder.records() == list(range(10))


def test_a_change_that_comes_while_drafts_go_has_drafts_of_its_own(folder: Folder) -> None:
    """The sink went on in the newest era, though only drafts of the one before had gone: a zombie
    made its entry beside the new one, and both held. Seed 1583 of the model."""
    alter(folder.files, {OTHER: 5})
    late = folder.staged(30, era=1)
    draft = folder.files.draft(draft_prefix(1), late.to_json())
    folder.files.draft(draft_prefix(0), b"")

    class Freezing(LocalFiles):
        def remove(self, path: str) -> None:
            second = Alteration(2, {OTHER: 6})
            folder.files.create(second.path, second.to_json())  # and its maker was killed
            super().remove(path)

    sink = Manifest(Freezing(folder.path), folder, "g")  # type: ignore[arg-type]
    assert sink.resume([PLACE]) == {PLACE: 30}
    assert sink.commit(folder.staged(30, sink.era))
    with pytest.raises(FileNotFoundError):
        folder.files.link(draft, late.path)
    folder.write(50)
    assert folder.records() == list(range(50))


def test_drafts_of_this_era_stay(folder: Folder) -> None:
    """The writers of these drafts have seen all changes."""
    alter(folder.files, {PLACE: 10})
    draft = folder.files.draft(draft_prefix(1), b"")
    finish(folder.files)
    assert folder.files.exists(draft)


def test_a_late_word_to_the_group_hides_no_batch_that_is_not_published(folder: Folder) -> None:
    """Once every batch before the group's offset counted as published."""
    alter(folder.files, {PLACE: 20})
    entry = folder.staged(20, era=1)
    folder.files.create(entry.path, entry.to_json())  # then its writer was killed
    folder.group[PLACE] = 30  # of a batch that was taken back
    folder.write(40)
    assert folder.records() == list(range(40))


def test_who_removes_late_removes_nothing_new(folder: Folder) -> None:
    """A worker froze while it altered offsets; another did it again and the sink went on."""

    class Freezing(LocalFiles):
        woken = False

        def remove(self, path: str) -> None:
            if not self.woken:
                self.woken = True
                alter(LocalFiles(folder.path), {PLACE: 0})
                folder.write(40)
            super().remove(path)

    alter(Freezing(folder.path), {PLACE: 10})
    assert folder.records() == list(range(40))
    assert folder.manifest().resume([PLACE]) == {PLACE: 40}


def test_of_two_changes_at_the_same_time_one_is_refused(folder: Folder) -> None:
    class Freezing(LocalFiles):
        def draft(self, prefix: str, content: bytes) -> str:
            alter(LocalFiles(folder.path), {PLACE: 0})
            return super().draft(prefix, content)

    with pytest.raises(ManifestError, match="at the same time"):
        alter(Freezing(folder.path), {PLACE: 20})
    assert look(folder.files).position(PLACE) == 0


def test_a_change_of_another_connector_in_the_folder_costs_one_batch(folder: Folder) -> None:
    running = folder.manifest()
    assert running.resume([PLACE]) == {PLACE: 30}
    alter(folder.files, {("of another connector", 0): 5})
    assert not running.commit(folder.staged(30, running.era))
    assert running.resume([PLACE]) == {PLACE: 30}
    assert running.commit(folder.staged(30, running.era))
    assert folder.records() == list(range(40))


def test_a_record_that_was_removed_or_changed_is_told(folder: Folder) -> None:
    for to in (20, 10):
        alter(folder.files, {PLACE: to})
    folder.files.remove("_headgate/altered-1.json")
    with pytest.raises(
        ManifestError, match=r"altered-2\.json is there and .*altered-1\.json is not"
    ):
        folder.manifest().resume([PLACE])
    folder.files.create("_headgate/altered-1.json", b'{"version": 9}')
    with pytest.raises(ManifestError, match=r"altered-1\.json has version 9, expected 1"):
        folder.manifest().resume([PLACE])


def test_a_record_keeps_its_shape() -> None:
    record = Alteration(3, {("ä-1", 2): 7, ("a", 0): 0})
    assert record.path == "_headgate/altered-3.json"
    assert Alteration.from_json(3, record.to_json()) == record
    assert record.to_json().decode() == ('{"version": 1, "offsets": [["a", 0, 0], ["ä-1", 2, 7]]}')
