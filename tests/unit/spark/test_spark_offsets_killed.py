"""A process that alters a sink's offsets is killed, with real files and a real log.

Wherever the kill happens, the next task of the sink finds the change made or not made, and finishes
it. Every record is in the folder once. Slices run in this process instead of on Spark.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.depth import first, tries
from support.spark import offsets_process

from headgate.ports import ProducerRecord
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_spark.alterations import look
from headgate_spark.file_sink import SparkFileSinkTask
from headgate_spark.files import LocalFiles
from headgate_spark.slices import SliceResult, SliceTask, run_slice

pytestmark = pytest.mark.slow

COUNT = 200
"""Records of each partition, in batches of ten."""
HALFWAY = tries(1, 4)
"""Kills that must land between the first and the last step."""
TRIES = 40
GROUP = f"connect-{offsets_process.CONNECTOR}"


class Context:
    stopping = False
    group = GROUP
    topics = ("t",)
    worker_settings = {"spark.remote": "sc://nowhere"}  # noqa: RUF012
    log_elsewhere = ("", "")

    def __init__(self, log: EmbeddedTransport) -> None:
        self.log = log.record_log

    def errant_record_reporter(self) -> None:
        return None

    def skipped(self, count: int, detail: str) -> None:
        raise AssertionError(detail)


class Here(SparkFileSinkTask):
    def _execute(self, slices: Sequence[SliceTask]) -> list[SliceResult]:
        return [run_slice(self.context.log, each) for each in slices]

    def _cores(self) -> int:
        return 2


def write_all(log: EmbeddedTransport, config: dict[str, str]) -> None:
    """A new task of the sink, until nothing is left."""
    task = Here()
    task.context = Context(log)
    task.start(config)
    while task.run_batch():
        pass


def records(folder: Path) -> list[tuple[int, int]]:
    """Partition and number of what readers of the folder find, sorted."""
    found = []
    for file in folder.glob("t-*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found.append((row["p"], row["n"]))
    return sorted(found)


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedTransport:
    transport = open_transport(transport_settings(tmp_path / "log"))
    transport.record_log.create_topic("t", 2)
    producer = transport.record_log.producer("test", None, None)
    for p in (0, 1):
        values = [json.dumps({"p": p, "n": n}).encode() for n in range(COUNT)]
        producer.send([ProducerRecord("t", p, None, value) for value in values])
        producer.acks()
    producer.close()
    return transport


@pytest.mark.parametrize(
    "asked", first(1, [None, [["t", 0, 100], ["t", 1, 0]]]), ids=["reset", "altered"]
)
def test_a_change_that_is_killed_is_made_or_not(
    log: EmbeddedTransport, tmp_path: Path, asked: object, say: Callable[[str], None]
) -> None:
    config = {
        "connector.class": "SparkFileSink",
        "topics": "t",
        "path": str(tmp_path / "out"),
        "format": "json",
        "batch.records.max": "20",
        "batch.interval.ms": "0",
    }
    folder = tmp_path / "out"
    seed = random.SystemRandom().randrange(1 << 31)
    chance = random.Random(seed)
    all_records = [(p, n) for p in (0, 1) for n in range(COUNT)]
    longest, made, landed = 0.0, 0, []
    for number in range(TRIES):
        write_all(log, config)
        assert records(folder) == all_records, (seed, number)
        command = [sys.executable, offsets_process.__file__, str(tmp_path / "log")]
        worker = subprocess.Popen(
            [*command, json.dumps(config), json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with worker:
            assert worker.stdin is not None and worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
            worker.stdin.write("\n")
            worker.stdin.flush()
            began = time.monotonic()
            if not number:
                assert worker.stdout.readline() == "altered\n"
                longest = time.monotonic() - began
            else:
                time.sleep(chance.uniform(0, longest))
                worker.kill()
                worker.wait()
        before, made = made, len(look(LocalFiles(folder)).alterations)
        if not number:
            continue
        stale = sum(1 for _ in look(LocalFiles(folder)).stale())
        ahead = any(log.record_log.committed(GROUP).get(("t", p)) == COUNT for p in (0, 1))
        if made > before and (stale or ahead):
            landed.append((stale, ahead))
        if len(landed) == HALFWAY:
            break
    say(f"seed {seed}: {number} kills; stale entries, group ahead: {landed}")
    assert len(landed) == HALFWAY, f"the kills came too early or too late, of {longest:.3f} s"
    write_all(log, config)
    assert records(folder) == all_records, seed
    committed = log.record_log.committed(GROUP)
    assert committed == {("t", p): COUNT for p in (0, 1)}
    log.close()
