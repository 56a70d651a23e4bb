"""Reports garbage in the offsets topic, when a worker begins and when its users look at offsets.

Differs: Connect's workers follow the topic as long as they live, and report at once.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from headgate.ports import TransportError, UnknownTopicError
from headgate_runtime.worker.rejected_log import Rejected, RejectedLog

log = logging.getLogger(__name__)

PAUSE_S: Final = 2.0
"""Pause between two looks, in seconds: users may ask for offsets again and again."""

Look: TypeAlias = Callable[[Callable[[Rejected], None]], None]
"""Function that passes each record that is no source offset to its argument, each record once."""


class OffsetsLook:
    """A thread that looks through the offsets topic when asked."""

    def __init__(self, look: Look, topic: str) -> None:
        self._look = look
        self._told = RejectedLog("offsets", topic)
        self._wanted = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="offsets-look", daemon=True).start()

    def soon(self) -> None:
        self._wanted.set()

    def close(self) -> None:
        """End the thread. A look that has begun is left alone."""
        self._closed.set()
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed.is_set():
                return
            self._wanted.clear()
            try:
                self._look(self._told.report)
            except (TransportError, UnknownTopicError) as error:
                # Nobody waits for this. A reader that needs the topic reports the error itself.
                log.info("the offsets topic was not looked through: %s", error)
            except Exception:  # a bug: reported once, whole; nothing else depends on this thread
                log.exception("the offsets topic was not looked through")
                return
            self._closed.wait(PAUSE_S)
