"""The file of a worker's journal, and the cost of a fault in it."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.herder import messages as m
from headgate.herder.journal import Journal, replay_journal
from headgate.herder.settings import HerderSettings
from headgate_runtime.worker.journal_file import JournalFile

SETTINGS = HerderSettings("w", "u")
COMMAND = m.CoordinatorLost("gone")
EFFECTS = (m.StopConnector("c", 1, 9),)


def broken(*_: object) -> Any:
    raise AttributeError("hunter2")


@pytest.fixture(autouse=True)
def debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("method", "act"),
    [
        ("first_line", lambda journal: journal.begin(SETTINGS, 0, 0)),
        ("line", lambda journal: journal.write(1, COMMAND)),
        ("decided", lambda journal: journal.decided(EFFECTS)),
    ],
)
def test_a_fault_of_a_journal_ends_it_and_is_logged_once(
    method: str,
    act: Callable[[JournalFile], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "journal"
    journal = JournalFile(path, 10_000)
    journal.begin(SETTINGS, 0, 0)
    before = path.read_text()
    with monkeypatch.context() as context:
        context.setattr(Journal, method, broken)
        act(journal)
    (said,) = warnings(caplog)
    assert f"the journal {path} ends here" in said
    assert "AttributeError at test_journal_file.py:" in said and "hunter2" not in caplog.text
    journal.write(2, COMMAND)
    journal.decided(EFFECTS)
    assert path.read_text() == before
    assert warnings(caplog) == [said] and "decided [" not in caplog.text


def test_a_journal_has_commands_and_the_log_has_decisions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal"
    journal = JournalFile(path, 10_000)
    journal.begin(SETTINGS, 0, 0)
    journal.write(1, m.Tick())
    journal.decided(EFFECTS)
    (step,) = replay_journal(path.read_text().splitlines(keepends=True))
    assert step.now_ms == 1
    assert "decided [" in caplog.text and warnings(caplog) == []
