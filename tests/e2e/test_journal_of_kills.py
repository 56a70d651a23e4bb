"""The journals of live workers, one of which is killed twice, replay to the decisions that were
made."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.pipelines import Up

from headgate.herder.journal import replay_journal, shown

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PIPELINE = """
[cluster]
workers = 3
data = "state"
runner = "thread"
"session.timeout.ms" = 3000
"heartbeat.interval.ms" = 500
"scheduled.rebalance.max.delay.ms" = 500
"headgate.journal" = "{worker}.journal"

[connectors.lines]
"connector.class" = "DirectorySource"
path = "in"
topic = "lines"
"tasks.max" = 4
"records.per.second" = 200

[connectors.copy]
"connector.class" = "DirectorySink"
topics = "lines"
path = "out"
format = "jsonl"
"""
WORKERS = ("worker-1", "worker-2", "worker-3")
DECIDED = re.compile(
    r"DEBUG headgate_runtime\.worker\.(?:"
    r"journal_file: decided (?P<effects>.*)|loop: (?P<command>\w+) -> (?P<names>.*))$",
    re.MULTILINE,
)
Decision = tuple[str, list[Any]]
"""The kind of a command, and the effects of it with all that they hold."""


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    monkeypatch.setenv("HEADGATE_LOG_LEVEL", "DEBUG")
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    for number in range(4):
        rows = [json.dumps({"n": n}) for n in range(10_000)]
        (tmp_path / "in" / f"{number}.jsonl").write_text("\n".join(rows) + "\n")
    started = Up(tmp_path).start()
    yield started
    started.clean_up()


def three_without(up: Up, gone: int) -> bool:
    pids = {each.pid for each in up.workers()}
    return len(pids) == 3 and gone not in pids


def replay(journal: Path) -> list[Decision]:
    """Return the decisions on each command of a journal."""
    steps = replay_journal(journal.read_text().splitlines(keepends=True))
    return [(type(step.command).__name__, shown(step.effects)) for step in steps]


def logged_in(log: str) -> list[Decision]:
    """Return the decisions in a worker's log. The effects stand before their command."""
    found: list[Decision] = []
    effects: list[Any] = []
    for match in DECIDED.finditer(log):
        if match["command"] is None:
            effects = json.loads(match["effects"])
            continue
        names = [] if match["names"] == "nothing" else match["names"].split(", ")
        decided = effects if names else []
        assert [each["type"] for each in decided] == names
        found.append((match["command"], decided))
    return found


def test_journals_of_workers_one_of_which_is_killed_replay(up: Up) -> None:
    up.wait_for("records", lambda: up.records("lines") > 200, 60)
    for _ in range(2):
        victim = min(each.pid for each in up.workers())
        records = up.records("lines")
        os.kill(victim, signal.SIGKILL)
        up.wait_for("worker", lambda gone=victim: three_without(up, gone), 30)  # type: ignore[misc]
        up.wait_for("records", lambda seen=records: up.records("lines") > seen + 600, 60)  # type: ignore[misc]
    up.end(signal.SIGINT)
    survivors = [each for each in WORKERS if not (up.folder / f"{each}.journal.1").exists()]
    assert survivors
    for worker in WORKERS:
        logged = logged_in((up.folder / "state" / "logs" / f"{worker}.log").read_text())
        replayed = replay(up.folder / f"{worker}.journal")
        if worker in survivors:
            assert sum(1 for _, effects in replayed if effects) > 30
            assert replayed == logged
            continue
        assert replayed and logged[-len(replayed) :] == replayed
        before = logged[: -len(replayed)]
        killed = replay(up.folder / f"{worker}.journal.1")
        # It has a command before the log tells what was decided on it.
        told = killed if before[-len(killed) :] == killed else killed[:-1]
        assert told and before[-len(told) :] == told
