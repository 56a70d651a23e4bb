"""The journal of a worker's herder as a file: ``headgate.journal``."""

import json
import logging
import os
import secrets
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headgate.herder.journal import Journal
from headgate.herder.messages import Command, Effect
from headgate.herder.settings import HerderSettings
from headgate_runtime.config.settings import WorkerSettings

log = logging.getLogger(__name__)


def open_journal(settings: WorkerSettings, worker: str) -> "JournalFile | None":
    """Return the journal that the settings ask for, or None if they ask for none. ``{worker}`` in
    its name stands for the worker's name, since the workers of a pipeline share their settings. If
    the file cannot be written, the worker runs without a journal."""
    name: str = settings["headgate.journal"]
    if not name:
        return None
    path = Path(name.replace("{worker}", worker.replace("/", "_")))
    try:
        return JournalFile(path, settings["headgate.journal.max.bytes"])
    except OSError as error:
        log.warning("headgate.journal: %s: %s; there is no journal", path, error.strerror)
        return None


class JournalFile:
    """A journal, written line by line, so that a killed worker's journal lacks one line at most.
    The journal of the worker's last run is kept as ``FILE.1``. For one thread.

    Args:
        bytes_max: size at which the journal ends. Later lines are not kept, and the log says so: a
            journal without its beginning cannot be replayed.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._left = bytes_max
        self._journal = Journal(secrets.token_bytes(16))
        if path.exists():
            path.replace(path.with_name(f"{path.name}.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", newline="\n")

    def begin(self, settings: HerderSettings, now_ms: int, wall_ms: int) -> None:
        with self._alone():
            self._write(self._journal.first_line(settings, now_ms, wall_ms))

    def write(self, now_ms: int, command: Command) -> None:
        if self._left > 0:
            with self._alone():
                self._write(self._journal.line(now_ms, command))

    def decided(self, effects: Sequence[Effect]) -> None:
        """Log at DEBUG, without secrets, what was decided on the command written last. A replay of
        the journal must decide the same."""
        if effects and self._left > 0 and log.isEnabledFor(logging.DEBUG):
            with self._alone():
                decision = json.dumps(self._journal.decided(effects), separators=(",", ":"))
                log.debug("decided %s", decision)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """End the journal, and not its worker, at a fault of the journal. The log says where the
        fault is but not what it says: the error may quote what the journal leaves out."""
        try:
            yield
        except Exception as error:
            self._left = 0
            *_, frame = traceback.extract_tb(error.__traceback__)
            log.warning(
                "the journal %s ends here: a fault of its own, %s at %s:%d; "
                "the worker goes on, please report it",
                self._path,
                type(error).__name__,
                Path(frame.filename).name,
                frame.lineno,
            )

    def _write(self, line: str) -> None:
        self._left -= len(line) + 1
        if self._left <= 0:
            log.warning(
                "the journal %s ends here: it has reached headgate.journal.max.bytes", self._path
            )
            return
        try:
            self._file.write(f"{line}\n")
        except OSError as error:
            self._left = 0
            log.warning("the journal %s ends here: %s", self._path, error)
