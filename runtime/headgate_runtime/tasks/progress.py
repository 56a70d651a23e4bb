"""A line in the log for each task, once a minute, that shows whether it makes progress."""

import logging
from collections.abc import Callable
from typing import Final

from headgate.task.messages import BatchDone, TaskProgress, TaskSpec
from headgate.task.steps import (
    BatchRun,
    BodyEffect,
    BodyInput,
    Committed,
    OffsetsCommitted,
    SendRecords,
)

_log = logging.getLogger("headgate.task")

KEY: Final = "headgate.log.progress.ms"
DEFAULT_MS: Final = 60_000


class ProgressLog:
    """Counts what a body does, and logs it at intervals."""

    def __init__(
        self,
        spec: TaskSpec,
        now_ms: int,
        lag: Callable[[], int | None],
        sent: Callable[[], int] = lambda: 0,
    ) -> None:
        """
        Args:
            lag: returns how many records a sink has still to commit, or None if it is not known.
            sent: returns how many records a source has sent that no commit covers yet.
        """
        self._open = sent
        self._task = spec.task
        self._lag = lag
        self._every_ms = _interval_ms(spec)
        self._since_ms = now_ms
        self._commits = self._records = self._told = 0
        self._batch: BatchDone | None = None
        self._sent = False
        """Whether anything was sent since the last commit."""

    def reported(self, progress: TaskProgress) -> None:
        self._records, self._batch = progress.records, progress.batch

    def begun(self, effect: BodyEffect) -> None:
        if isinstance(effect, SendRecords):
            self._sent = True

    def done(self, outcome: BodyInput) -> None:
        """Count a commit. Empty commits do not count: there is one after each empty poll."""
        match outcome:
            case Committed() if self._sent:
                self._commits, self._sent = self._commits + 1, False
            case OffsetsCommitted(records) | BatchRun(records) if records:
                self._commits += 1
            case _:
                pass

    def look(self, now_ms: int) -> None:
        """Log the progress, if it is time."""
        if not self._every_ms or now_ms - self._since_ms < self._every_ms:
            return
        seconds = (now_ms - self._since_ms) / 1000
        new, self._told, self._since_ms = self._records - self._told, self._records, now_ms
        commits, self._commits = self._commits, 0
        lag, sent = self._lag(), self._open()
        _log.info(
            "%s: %s records and %s commits in %.0f s; %s records since it started%s%s%s",
            *(self._task, f"{new:,}", f"{commits:,}", seconds, f"{self._records:,}"),
            f"; {sent:,} more sent, not committed yet" if sent else "",
            "" if lag is None else f"; lag {lag:,}",
            "" if self._batch is None else f"; {self._batch}",
        )


def _interval_ms(spec: TaskSpec) -> int:
    text = spec.worker_settings.get(KEY, "")
    return int(text) if text.isascii() and text.isdecimal() else DEFAULT_MS
