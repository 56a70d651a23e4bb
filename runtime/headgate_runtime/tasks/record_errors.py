"""Handling of a record that fails: try again, log it, or make a dead letter of it.

Only `RetriableError` of a transform or a converter is tried again, as in Connect. A record that
waits for its next attempt holds up those behind it. The body puts them aside and goes on with
everything else (`Waiting`).
"""

import logging
import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from headgate.connector.api import (
    RetriableError,
    SkippedRecord,
    SourceRecord,
)
from headgate.connector.converters import CONVERTERS, converter_class
from headgate.connector.dead_letters import (
    Failure,
    log_text,
    sink_letter,
    source_letter,
    told_sink,
    told_source,
)
from headgate.connector.error_handling import (
    ErrorSettings,
    ErrorStage,
    Retry,
    letters_advice,
)
from headgate.connector.transforms import TRANSFORMS
from headgate.ports import ConsumerRecord, ProducerRecord
from headgate.task.messages import ErrorFigures, TaskSpec

_log = logging.getLogger("headgate.task")

TOLD_MAX: Final = 10_000
"""Most characters of a record in a log line."""

_KEYS: Final = {
    ErrorStage.KEY_CONVERTER: "key.converter",
    ErrorStage.VALUE_CONVERTER: "value.converter",
    ErrorStage.HEADER_CONVERTER: "header.converter",
}
_JAVA_PACKAGE: Final = "org.apache.kafka.connect."


class ErrorCounts:
    """Error counts of one run. May be used from any thread: a sink may report records from its
    own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = ErrorFigures()

    def failed(self, *, again: bool, logged: bool = False) -> None:
        """Count a failed attempt at a record.

        Args:
            again: another attempt follows. Otherwise the record is given up.
        """
        with self._lock:
            now = self._now
            self._now = replace(
                now,
                failures=now.failures + 1,
                errors=now.errors + (not again),
                retries=now.retries + again,
                logged=now.logged + logged,
                last_ms=time.time_ns() // 1_000_000,
            )

    def letters(self, written: int, refused: int = 0) -> None:
        """Count dead letters that were given to the log's client, or refused by the log."""
        with self._lock:
            now = self._now
            letters, failed = now.letters + written, now.refused_letters + refused
            self._now = replace(now, letters=letters, refused_letters=failed)

    def read(self) -> ErrorFigures:
        return self._now


class RecordErrors:
    """The `errors.*` settings of one task, applied."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self.counts = ErrorCounts()
        self.settings = ErrorSettings.from_config(spec.connector_config)
        config = spec.connector_config
        self._aliases = [
            alias.strip() for alias in config.get("transforms", "").split(",") if alias.strip()
        ]
        if advice := letters_advice(config):
            _log.warning("%s: %s", spec.task, advice)

    def class_of(self, stage: ErrorStage, at: int) -> str:
        """Return Connect's name of the class that runs in `stage`. `at` is a transform's place in
        its chain."""
        config = self._spec.connector_config
        if stage in _KEYS:
            name = converter_class(_KEYS[stage], config, self._spec.worker_settings)
            return _full_name(name, CONVERTERS)
        alias = self._aliases[at] if at < len(self._aliases) else ""
        return _full_name(config.get(f"transforms.{alias}.type", alias).strip(), TRANSFORMS)

    def sink_letter(
        self, raw: ConsumerRecord, error: BaseException, stage: ErrorStage, executing: str
    ) -> ProducerRecord | None:
        """Count an error, and log it as `errors.log.*` say. Return the dead letter, if a queue is
        named."""
        self._tell(error, stage, executing, told_sink, raw)
        settings = self.settings
        if not settings.topic:
            return None
        failure = self._failure(error, stage, executing) if settings.headers else None
        return sink_letter(settings.topic, raw, failure)

    def source_letter(
        self,
        record: SourceRecord | SkippedRecord,
        error: BaseException,
        stage: ErrorStage,
        executing: str,
    ) -> ProducerRecord | None:
        """Do what `sink_letter` does. With a tolerance of none, return None, too: the record is
        read again."""
        self._tell(error, stage, executing, told_source, record)
        settings = self.settings
        if not settings.topic or not settings.tolerate:
            return None
        failure = self._failure(error, stage, executing) if settings.headers else None
        self.counts.letters(1)
        return source_letter(settings.topic, record, failure)

    def _failure(self, error: BaseException, stage: ErrorStage, executing: str) -> Failure:
        task = self._spec.task
        trace = "".join(traceback.format_exception(error))
        return Failure(task.connector, task.task, stage, executing, error, trace)

    def _tell(
        self,
        error: BaseException,
        stage: ErrorStage,
        executing: str,
        tell: Callable[[Any], str],
        record: object,
    ) -> None:
        self.counts.failed(again=False, logged=self.settings.log)
        if not self.settings.log:
            return
        told = tell(record) if self.settings.log_messages else None
        if told is not None and len(told) > TOLD_MAX:
            told = f"{told[:TOLD_MAX]}... ({len(told)} characters)"
        text = log_text(str(self._spec.task), stage, executing, told)
        _log.error("%s", text, exc_info=error)


R = TypeVar("R")
D = TypeVar("D")


@dataclass(slots=True)
class _Resume(Generic[D]):
    """How far the first of the waiting records has come."""

    record: D | None
    """The record before the transform that failed. None: it starts from the beginning."""
    chain: Sequence[Any]
    """Transforms that are still to be applied."""


class Waiting(Generic[R, D]):
    """Waiting records, of which the first is to be tried again. `R` is a record as it came, `D` a
    transformed one."""

    def __init__(self, errors: RecordErrors, task: object, now_ms: Callable[[], int]) -> None:
        self._settings = errors.settings
        self._counts = errors.counts
        self._now_ms = now_ms
        self._task = task
        self.records: Sequence[R] = ()
        self._resume: _Resume[D] | None = None
        self._retry: Retry | None = None
        self._first: R | None = None
        """The record of `_retry`."""
        self.reason = ""
        """Why the first record waits."""

    def __bool__(self) -> bool:
        return bool(self.records)

    def again(
        self,
        error: Exception,
        records: Sequence[R],
        at: int,
        record: D | None,
        chain: Sequence[Any],
    ) -> bool:
        """Return whether `records[at]`, which has failed, is to be tried again before those behind
        it.

        Args:
            record, chain: where to go on with it.
        """
        if not isinstance(error, RetriableError) or self._settings.retry_timeout_ms == 0:
            return False
        now_ms, first = self._now_ms(), records[at]
        if self._retry is None or self._first is not first:
            self._first, self._retry = first, Retry(self._settings, now_ms, random.randrange)
            _log.warning("%s: tries a record again: %s", self._task, error)
        if not self._retry.failed(now_ms):
            return False
        self._counts.failed(again=True)
        self.records, self._resume = records[at:], _Resume(record, chain)
        self.reason = str(error) or type(error).__name__
        return True

    def left_ms(self) -> int:
        """Return the time until the next attempt may be made, in ms."""
        return max(0, self._retry.due_ms - self._now_ms()) if self._retry is not None else 0

    def take(self) -> tuple[Sequence[R], tuple[D | None, Sequence[Any]]]:
        """Take the records, and where to go on with the first of them. Its attempts are still
        counted."""
        records, resume = self.records, self._resume
        assert resume is not None
        self.records, self._resume = (), None
        return records, (resume.record, resume.chain)

    def keep(self, stays: Callable[[R], bool]) -> None:
        """Keep only records for which `stays` is true: the others' partitions were revoked."""
        if not self.records:
            return
        self.records = [record for record in self.records if stays(record)]
        if not self.records or self.records[0] is not self._first:
            # The record that is first now begins anew, without a wait.
            self._resume, self._retry = _Resume(None, ()), None


def place_of(chain: Sequence[Any], apply: Any) -> int:
    """Return the place in the chain of a transform, given its bound method."""
    return next((at for at, one in enumerate(chain) if one == apply), 0)


def _full_name(name: str, known: Mapping[str, object]) -> str:
    """Return Java's name of a class that has shorter names, too. Otherwise return the name
    itself."""
    found = known.get(name)
    for full, other in known.items():
        if found is not None and other == found and full.startswith(_JAVA_PACKAGE):
            return full
    return name
