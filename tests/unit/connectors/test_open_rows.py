"""A CSV row whose quote is open is not parsed again at each growth of its file, and is not lost."""

import json
from pathlib import Path

import pytest
from support.task.directory_runs import run
from support.task.source_tasks import Run, reasons, values

from headgate_connectors.formats.csv_file import CsvReader

SETTLE = 60.0
FILL = "x" * 98 + ",\n"


class Growing:
    """A file with an open row of 2 MB that a task has read as far as that goes, and its clock."""

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        *,
        until_idle: bool,
        row: str = FILL * 20_000,
        target: Path | None = None,
    ) -> None:
        self.now = 1000.0
        self.parsed = 0
        patch.setattr("headgate_connectors.directory.time.monotonic", lambda: self.now)
        read = CsvReader.read

        def counted(reader: CsvReader, limit: int, settled: bool) -> object:
            self.parsed += 1
            return read(reader, limit, settled)

        patch.setattr(CsvReader, "read", counted)
        self.path = folder / "a.csv"
        if target is not None:
            self.path.symlink_to(target)
        self.path.write_text('id,b\n1,"' + row)
        settle = str(int(SETTLE * 1000))
        self.subject: Run = run(folder, until_idle=until_idle, **{"file.settle.ms": settle})
        assert self.grown("") == 1

    def grown(self, text: str, seconds: float = 0.1) -> int:
        """Return how often a poll parses the open row, this long after the file has grown."""
        with self.path.open("a") as file:
            file.write(text)
        return self.polled(seconds)

    def polled(self, seconds: float) -> int:
        self.now += seconds
        before = self.parsed
        assert self.subject.poll() == []  # the file is awaited
        return self.parsed - before


@pytest.mark.parametrize("until_idle", [True, False])
def test_a_long_open_row_waits_until_it_is_a_quarter_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until_idle: bool
) -> None:
    file = Growing(tmp_path, monkeypatch, until_idle=until_idle)
    assert [file.grown(FILL) for _ in range(20)] == [0] * 20
    assert file.grown(FILL * 5_000) == 1
    assert file.grown(FILL * 5_000) == 0


@pytest.mark.parametrize("until_idle", [True, False])
def test_the_end_of_the_settling_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until_idle: bool
) -> None:
    file = Growing(tmp_path, monkeypatch, until_idle=until_idle)
    assert file.grown('"\n2,y\n') == 0
    assert file.polled(SETTLE - 1) == 0
    file.now += 2
    found = values(file.subject.poll() or [])
    assert [len(json.loads(one)["b"]) for one in found] == [len(FILL * 20_000), 1]


def test_a_row_that_is_open_when_its_file_is_settled_costs_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Growing(tmp_path, monkeypatch, until_idle=True, row="lost\n" + "2,y\n" * 300_000)
    assert file.grown("3,z\n") == 0
    file.now += SETTLE
    found = file.subject.rest()
    assert len(values(found)) == 300_001
    assert len(reasons(found)) == 1


def test_a_file_that_is_never_still_is_parsed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Growing(tmp_path, monkeypatch, until_idle=False)
    assert [file.grown(FILL, 29), file.grown(FILL, 2), file.grown(FILL, 29)] == [0, 1, 0]


def test_a_short_open_row_is_parsed_at_each_growth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Growing(tmp_path, monkeypatch, until_idle=False, row=FILL)
    assert [file.grown(FILL) for _ in range(3)] == [1, 1, 1]


def test_a_file_that_is_another_one_is_looked_at_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Growing(tmp_path, monkeypatch, until_idle=False)
    (tmp_path / "new").write_text('id,b\n1,"' + FILL * 20_100)
    (tmp_path / "new").replace(file.path)
    assert file.grown("") == 1


def test_a_link_to_another_file_is_looked_at_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are links are told apart by nothing else: see `File.awaits_growth`."""
    folder = tmp_path / "in"
    folder.mkdir()
    target = tmp_path / "target"
    file = Growing(folder, monkeypatch, until_idle=False, target=target)
    (tmp_path / "new").write_text('id,b\n1,"' + FILL * 20_100)
    (tmp_path / "new").replace(target)
    assert file.grown("") == 1
