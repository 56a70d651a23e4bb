"""Connectors that tests run on every task runner. Their names are
``support.task.connectors:<Class>``."""

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headgate.connector.api import (
    ExactlyOnceSupport,
    PlannedSinkTask,
    RecordMetadata,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SkippedRecord,
    SourceConnector,
    SourceRecord,
    SourceTask,
)
from headgate.connector.config import ConfigDef


class CountingTask(SourceTask):
    """A source of numbers after the committed one, up to ``limit``, in batches of ``batch``."""

    def start(self, config: Mapping[str, str]) -> None:
        if "start.fails" in config:
            raise ValueError("this task does not start")
        if "logs" in config:
            _log_all_sorts(config["logs"])
        if "login.fails" in config:
            raise ValueError(f"no login {config['login.fails']}")
        self._config = config
        self._partition = {"task": config.get("task", "0")}
        found = self.context.offsets.offset(self._partition)
        self._next = 0 if found is None else int(found["next"])
        self._limit = int(config.get("limit", "1000000000"))
        self._batch = int(config.get("batch", "10"))
        if "pid.file" in config:
            Path(config["pid.file"]).write_text(str(os.getpid()))

    def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
        if self._next >= int(self._config.get("fails.at", "1000000000")):
            raise ValueError("this poll fails")
        if self._next >= self._limit:
            self.context.wait(0.05)
            return None
        if "pause.s" in self._config:
            self.context.wait(float(self._config["pause.s"]))
        numbers = range(self._next, min(self._next + self._batch, self._limit))
        self._next = numbers.stop
        topic = self._config.get("topic", "numbers")
        return [
            SourceRecord(self._partition, {"next": n + 1}, topic, f"{n}", key=f"{n % 7}")
            for n in numbers
        ]


def _log_all_sorts(word: str) -> None:
    logger = logging.getLogger("acme.files")
    try:
        raise ValueError(f"no {word}\nin two lines")
    except ValueError:
        logger.exception("c-0: %s", word)
    logger.debug("%s that nobody asked for", word)
    logger.warning("%s of a name that is no text: \udcff", word)
    logging.getLogger("headgate.task").info("c-0: %s", word)
    print(f"{word} printed", flush=True)


class HangingTask(CountingTask):
    """A source that ignores a stop: in `poll`, and with ``hangs.in.stop`` also in `stop`."""

    def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
        if self._next >= 20:
            time.sleep(3600)
        return super().poll()


class WaitingTask(SourceTask):
    """A source whose `poll` returns only once ``file`` exists."""

    def start(self, config: Mapping[str, str]) -> None:
        self._file = Path(config["file"])

    def poll(self) -> None:
        while not self._file.exists():
            time.sleep(0.02)
        self.context.wait(0.05)


class MeetingTask(CountingTask):
    """A source whose `start` returns only once ``of`` tasks are in theirs. Each makes a file in
    ``folder``, which must exist."""

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        folder = Path(config["folder"])
        (folder / config["task"]).touch()
        while len(list(folder.iterdir())) < int(config["of"]):
            time.sleep(0.02)


class StuckTask(CountingTask):
    """A source whose `stop` does not return."""

    def stop(self) -> None:
        time.sleep(3600)


class CountingSource(SourceConnector):
    TASK = CountingTask

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{"task": str(n)} for n in range(tasks_max)]


class MeetingSource(SourceConnector):
    TASK = MeetingTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("folder").define("of").define("limit")

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{**self.config, "task": str(n)} for n in range(tasks_max)]


class HangingSource(SourceConnector):
    TASK = HangingTask


class WaitingSource(SourceConnector):
    TASK = WaitingTask


class StuckSource(SourceConnector):
    TASK = StuckTask


class AckedTask(CountingTask):
    """A source that appends a line to ``acks`` for each record and commit that is reported to
    it."""

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        place = f"{metadata.topic}-{metadata.partition}:{metadata.offset}" if metadata else "none"
        self._acked(f"{record.value} {place}")

    def commit(self) -> None:
        self._acked("commit")

    def _acked(self, line: str) -> None:
        with Path(self._config["acks"]).open("a") as out:
            out.write(f"{line}\n")


class AckedSource(SourceConnector):
    TASK = AckedTask


class BoundaryTask(CountingTask):
    """A source that stamps its records with the time of their poll and defines transaction
    boundaries.

    Where it may, it ends a transaction after every ``size`` numbers, also within a batch. It aborts
    each ``abort.every``-th.
    """

    def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
        records = [each for each in super().poll() or () if isinstance(each, SourceRecord)]
        for record in records:
            record.timestamp_ms = time.time_ns() // 1_000_000
            ended, inside = divmod(record.source_offset["next"], int(self._config.get("size", "1")))
            transaction = self.context.transaction
            if transaction is None or inside:
                continue
            if ended % int(self._config["abort.every"]):
                transaction.commit_transaction(record)
            else:
                transaction.abort_transaction(record)
        return records


class BoundarySource(CountingSource):
    TASK = BoundaryTask

    def start(self, config: Mapping[str, str]) -> None:
        self._config = config

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{**self._config, **each} for each in super().task_configs(tasks_max)]

    @classmethod
    def can_define_transaction_boundaries(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED


class CollectingTask(SinkTask):
    """A sink that appends each record to a file, as a line."""

    def start(self, config: Mapping[str, str]) -> None:
        self._path = Path(config["path"])

    def put(self, records: Sequence[SinkRecord]) -> None:
        self._tell(*(f"{item.topic}-{item.partition}:{item.value}" for item in records))

    def _tell(self, *lines: str) -> None:
        with self._path.open("a") as out:
            out.writelines(f"{line}\n" for line in lines)


class CollectingSink(SinkConnector):
    TASK = CollectingTask


class AskingTask(CollectingTask):
    """A sink that pauses its partitions after the first batch and resumes them 300 ms later.

    It asks for commits, and writes a line when `put` is called without records.
    """

    _paused = False

    def put(self, records: Sequence[SinkRecord]) -> None:
        super().put(records)
        if records:
            self.context.request_commit()
            self.context.pause(*self.context.assignment())
            self.context.timeout(300)
            self._paused = True
        elif self._paused:
            self._tell("resume")
            self.context.resume(*self.context.assignment())
            self._paused = False


class AskingSink(SinkConnector):
    TASK = AskingTask


class PlannedTask(PlannedSinkTask):
    """A planned sink whose batch is the count of new records in its topics."""

    def start(self, config: Mapping[str, str]) -> None:
        self._seen = 0

    def run_batch(self) -> int:
        end = sum(self.context.log.end_offsets(self.context.topics).values())
        found, self._seen = end - self._seen, end
        return found


class PlannedSink(SinkConnector):
    TASK = PlannedTask

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        return [{}]
