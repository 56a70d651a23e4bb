"""Retention passes of ``headgate up``, on a thread of the process that holds the data folder."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.ports import TransportError
from headgate.topics.config_events import Config
from headgate_runtime.up import folder
from headgate_runtime.up.observe import kind_of
from headgate_runtime.up.pipeline import Pipeline

if TYPE_CHECKING:
    from headgate_embedded.retention import HeldBack, Passed, Retention

STILL_PASSES = 3
"""Passes after which a sink that has not moved is named as holding retention back."""


class RetentionPasses:
    """Retention passes: one at the start, one each ``retention.check.interval.ms``, and one at the
    end."""

    def __init__(self, pipeline: Pipeline, say: Callable[[str], None], *, join: bool) -> None:
        """Run no passes with `join`: they belong to the `headgate up` that holds the cluster."""
        self._pipeline = pipeline
        self._say = say
        self._theirs = join
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._held: dict[tuple[str, int, str], tuple[int, int]] = {}
        """Offsets of the sinks that held records back, and for how many passes in a row."""
        self._failed = ""

    def give_back(self) -> None:
        """Shrink the file, before it is used."""
        if self._theirs or not self._pipeline.data.is_dir():
            return
        try:
            if bytes_freed := folder.give_back(self._pipeline.data):
                self._say(f"the log gave {bytes_freed:,} bytes back that retention had freed")
        except TransportError as error:
            self._say(f"the log keeps the space that retention has freed: {error}")

    def start(self) -> None:
        if not self._theirs and not self._pipeline.log.keeps_all:
            self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End without a last pass. A pass under way stops at its next step."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(10)
            self._thread = None

    def finish(self) -> None:
        """Run the last pass, once all workers have stopped, so that their last commits count."""
        if self._thread is not None:
            self.close()
            retention = self._open()
            try:
                self._pass(retention, lambda: False)
            finally:
                retention.close()

    def _open(self) -> "Retention":
        pipeline = self._pipeline
        return folder.open_retention(pipeline.data, pipeline.log, _is_sink, pipeline.connectors)

    def _run(self) -> None:
        retention = self._open()
        try:
            while not self._stopping.is_set():
                self._pass(retention, self._stopping.is_set)
                self._stopping.wait(self._pipeline.log.check_interval_ms / 1000)
        finally:
            retention.close()

    def _pass(self, retention: "Retention", stopping: Callable[[], bool]) -> None:
        try:
            self._tell(retention.run(stopping))
            self._failed = ""
        except TransportError as error:
            if str(error) != self._failed:  # a full disk, for example: the next pass may succeed
                self._failed = str(error)
                self._say(f"retention: {error}")

    def _tell(self, passed: "Passed") -> None:
        for one in passed.removed:
            self._say(
                f"retention: {one.topic}-{one.partition}: deleted {one.end - one.first:,} records "
                f"({one.size:,} bytes), offsets {one.first} to {one.end - 1}"
            )
        before, self._held = self._held, {}
        for held in passed.held_back:
            key = (held.topic, held.partition, held.connector)
            offset, passes = before.get(key, (-1, 0))
            passes = passes + 1 if offset == held.offset else 1
            self._held[key] = (held.offset, passes)
            if passes == STILL_PASSES:  # before, it may only be a little behind
                self._say(_held_line(held))


def _is_sink(config: Config) -> bool:
    """Return whether a connector may be a sink. If that is unclear it counts as one, so its records
    stay."""
    return kind_of(config) != "source"


def _held_line(one: "HeldBack") -> str:
    return (
        f"retention: {one.topic}-{one.partition}: sink {one.connector} has committed up to offset "
        f"{one.offset}, so records up to {one.wanted - 1} stay that are due; retention.past.sinks "
        "= true would delete them"
    )
