"""A million records go through three workers on Spark while workers, an executor and frozen
processes come and go.

The output must be the input: nothing lost or doubled, in order per file, and every connector
running again. Every fault must happen while records flow, or the test proves nothing.
"""

import fcntl
import itertools
import json
import os
import random
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up
from support.commands.processes import Process, signal_if_alive

RECORDS = 1_000_000
FILES = 12
KILLS = 10
SESSION_S = 4.0
SEED = int(os.environ.get("HEADGATE_CHAOS_SEED", "0")) or random.SystemRandom().randrange(
    1, 1 << 31
)

PIPELINE = """
[cluster]
workers = 3
data = "state"
runner = "spark"
"session.timeout.ms" = 4000
"heartbeat.interval.ms" = 500
"scheduled.rebalance.max.delay.ms" = 1000
"task.shutdown.graceful.timeout.ms" = 3000

[spark]
master = "local-cluster[2,1,1024]"

[connectors.events]
"connector.class" = "DirectorySource"
path = "in"
topic = "events"
"tasks.max" = 3
"batch.size" = 500
"records.per.second" = 4000

[connectors.lake]
"connector.class" = "SparkFileSink"
topics = "events"
format = "parquet"
path = "out"
"columns.metadata" = "offset,partition"
"""


def write_input(folder: Path) -> None:
    folder.mkdir()
    per_file, rest = divmod(RECORDS, FILES)
    for number in range(FILES):
        count = per_file + (1 if number < rest else 0)
        with (folder / f"part-{number:02d}.jsonl").open("w") as out:
            for line in range(count):
                out.write(f'{{"file":{number},"line":{line}}}\n')


class Chaos:
    """Hurts one pipeline, and notes that each blow landed while records flowed."""

    def __init__(self, up: Up, chance: random.Random, say: Callable[[str], None]) -> None:
        self.up = up
        self.chance = chance
        self.say = say
        self.landed: list[str] = []

    def flowing(self) -> None:
        """Records arrive now, and the end is not near."""
        before = self.up.records("events")
        self.up.wait_for("progress", lambda: self.up.records("events") > before, 60)
        assert self.up.records("events") < RECORDS, f"too late; landed: {self.landed}"

    def blow(self, what: str) -> None:
        self.flowing()
        self.landed.append(f"{what} at {self.up.records('events')} records")
        self.say(self.landed[-1])

    def a_worker(self) -> Process:
        self.up.wait_for("a worker", lambda: bool(self.up.workers()), 30)
        return self.chance.choice(self.up.workers())

    def kill_a_worker(self) -> None:
        worker = self.a_worker()
        self.blow(f"SIGKILL of worker {worker.pid}")
        os.kill(worker.pid, signal.SIGKILL)

    def kill_an_executor(self) -> None:
        executor = self.chance.choice(self.up.executors())
        self.blow(f"SIGKILL of executor {executor.pid}")
        os.kill(executor.pid, signal.SIGKILL)

    def freeze_a_worker(self) -> None:
        worker = self.a_worker()
        self.blow(f"SIGSTOP of worker {worker.pid}")
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(SESSION_S * 1.5)
        os.kill(worker.pid, signal.SIGCONT)

    def freeze_a_worker_and_its_tasks(self) -> None:
        """Freeze a worker and its tasks, as if the machine were suspended in the middle of
        transactions.

        They wake up as zombies, and may go on where they stood, before a commit.
        """
        worker = self.a_worker()
        tasks = [p for p in self.up.look() if p.parent in self.up.daemons()]
        assert tasks, "no task runs on an executor"
        self.blow(f"SIGSTOP of worker {worker.pid} and {len(tasks)} processes of tasks")
        for process in [worker, *tasks]:
            signal_if_alive(process.pid, signal.SIGSTOP)
        time.sleep(SESSION_S * 1.5)
        woken = [p for p in [*tasks, worker] if signal_if_alive(p.pid, signal.SIGCONT)]
        self.say(
            f"{len(woken)} of them wake up as zombies; the others were killed by their workers"
        )

    def freeze_in_a_transaction(self) -> None:
        """Catch a worker that holds the log's write lock, and stop it there."""
        self.blow("hunt for a worker inside a transaction")
        deadline = time.monotonic() + 60
        workers: set[int] = set()
        for look in itertools.count():
            assert time.monotonic() < deadline, "no worker was caught inside a transaction"
            if look % 5_000 == 0:
                workers = {p.pid for p in self.up.workers()}
            holder = lock_holder(self.up.log_folder)
            if holder not in workers:
                continue
            assert holder is not None
            os.kill(holder, signal.SIGSTOP)
            if lock_holder(self.up.log_folder) == holder:
                self.landed.append(f"SIGSTOP of worker {holder} inside a transaction")
                self.say(self.landed[-1])
                time.sleep(SESSION_S * 1.5)
                self._continue(holder)
                return
            os.kill(holder, signal.SIGCONT)

    def _continue(self, pid: int) -> None:
        if not signal_if_alive(pid, signal.SIGCONT):
            self.say(f"{pid} had been killed by those whom it kept from the log, as it must be")


def lock_holder(folder: Path) -> int | None:
    """Pid of the process that holds the write lock of the log in `folder` now.

    SQLite's WAL mode locks byte 120 of the shared memory file for writing.
    """
    shared = next(folder.glob("*-shm"), None)
    if shared is None:
        return None
    layout = "hhqqi4x"
    with shared.open("rb+") as file:
        asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 120, 1, 0)
        kind, _, _, _, pid = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else pid


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    write_input(tmp_path / "in")
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    up = Up(tmp_path, ("--until-idle",))
    yield up
    up.clean_up()


def check_output(folder: Path) -> dict[str, int]:
    """The output against the input, with nothing of Headgate's own in between."""
    per_file, rest = divmod(RECORDS, FILES)
    expected = {n: per_file + (1 if n < rest else 0) for n in range(FILES)}
    rows: dict[int, list[tuple[int, int]]] = {n: [] for n in range(FILES)}
    for path in sorted(folder.rglob("*.parquet")):
        if any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            continue
        table = pq.ParquetFile(path).read(columns=["file", "line", "_offset"])
        for file, line, offset in zip(*(c.to_pylist() for c in table.columns), strict=True):
            rows[file].append((offset, line))
    lost = doubled = disordered = 0
    for number, found in rows.items():
        found.sort()
        lines = [line for _, line in found]
        lost += expected[number] - len(set(lines))
        doubled += len(lines) - len(set(lines))
        disordered += lines != sorted(lines)
    return {"lost": lost, "doubled": doubled, "files out of order": disordered}


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_million_records_survive_everything(up: Up, say: Callable[[str], None]) -> None:
    say(f"seed {SEED}; run it again with HEADGATE_CHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    up.start()
    up.wait_for("first records", lambda: up.records("events") > 0, 180)
    chaos = Chaos(up, chance, say)
    blows = [chaos.kill_a_worker] * KILLS
    for other in (
        chaos.kill_an_executor,
        chaos.freeze_a_worker,
        chaos.freeze_a_worker_and_its_tasks,
        chaos.freeze_in_a_transaction,
    ):
        blows.insert(chance.randrange(len(blows)), other)
    for blow in blows:
        blow()
        time.sleep(chance.uniform(1.0, 4.0))
    assert up.records("events") < RECORDS, f"the records ended too soon: {chaos.landed}"
    assert up.process is not None
    code = up.process.wait(900)
    assert code == 0, up.tail()
    found = check_output(up.folder / "out")
    say(json.dumps(found))
    assert not any(found.values()), found
