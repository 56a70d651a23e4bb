"""Retention keeps the records that sinks have not written, also while `headgate up` is killed."""

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.pipelines import Up
from support.depth import first

from headgate_embedded import open_reader

FILES, LINES = 4, 6_000
PIPELINE = """
[cluster]
data = "state"
runner = "thread"
"session.timeout.ms" = 4000
"heartbeat.interval.ms" = 500
"scheduled.rebalance.max.delay.ms" = 0

[log]
"retention.bytes" = 200000
"retention.check.interval.ms" = 100

[connectors.events]
"connector.class" = "DirectorySource"
path = "in"
topic = "events"
"batch.size" = 100
"records.per.second" = 3000

[connectors.lake]
"connector.class" = "DirectorySink"
topics = "events"
path = "out"
format = "jsonl"
"rotate.interval.ms" = 300
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        lines = "".join(json.dumps({"n": f"{file}-{n}"}) + "\n" for n in range(LINES))
        (tmp_path / "in" / f"{file}.jsonl").write_text(lines)
    started = Up(tmp_path)
    yield started
    started.clean_up()


def _first(up: Up) -> int:
    reader = open_reader(up.log_folder)
    try:
        return reader.record_log.start_offsets(["events"]).get(("events", 0), 0)
    finally:
        reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("kills", first(1, [2, 8]))
@pytest.mark.exhaustive
def test_killed_during_passes_nothing_is_lost(up: Up, kills: int) -> None:
    chance = random.Random(kills)
    for _ in range(kills):
        up.start()
        up.wait_for("log", (up.log_folder / "headgate.db").exists, 20)
        before = _first(up)
        up.wait_for("pass that deletes", lambda before=before: _first(up) > before, 30)  # type: ignore[misc]
        time.sleep(chance.random() * 0.5)
        up.look()
        up.end(signal.SIGKILL)
        for process in up.family.values():
            up_gone = time.monotonic() + 15
            while process.alive() and process.same() and time.monotonic() < up_gone:
                time.sleep(0.05)
    up.arguments = ("--until-idle",)
    text = (up.folder / "pipeline.toml").read_text()
    (up.folder / "pipeline.toml").write_text(text.replace('"records.per.second" = 3000\n', ""))
    assert up.start().end(signal.SIGCONT, 60) == 0, up.tail()
    found = Counter(
        json.loads(line)["n"]
        for file in (up.folder / "out").rglob("*.jsonl")
        for line in file.read_text().splitlines()
    )
    assert found == Counter(f"{file}-{n}" for file in range(FILES) for n in range(LINES))
    assert _first(up) > FILES * LINES - 8_000
