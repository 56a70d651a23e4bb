"""Notices that an application of a standalone cluster has lost its last executor for good.

A driver does not register a second time. A master that was restarted without memory ends the
executors of applications that it does not know, and gives them no others. The driver then waits for
ever, and only another application helps.
"""

import json
import threading
import time
import urllib.request
from typing import Any, Final

from headgate_spark.sessions import listens

LOOK_S: Final = 3.0
"""Time between two looks at the executors on Spark's pages, in seconds."""
NONE_S: Final = 20.0
"""How long there must have been no executor, in seconds. A Spark worker that comes back brings
some."""
_ANSWER_S: Final = 5.0
_STANDALONE: Final = "spark://"
_DRIVER: Final = "driver"


class ExecutorWatch:
    """Watches one Spark. If it cannot know, it notices nothing.

    Args:
        master: the master as Spark is given it. Masters of other kinds give new executors by
            themselves.
        pages: address of Spark's own web pages. None: there are none.
    """

    def __init__(
        self,
        master: str,
        pages: str | None,
        *,
        look_s: float = LOOK_S,
        none_s: float = NONE_S,
    ) -> None:
        self._masters = _addresses(master)
        self._pages = pages
        self._look_s = look_s
        self._none_s = none_s
        self._over = threading.Event()
        self._lost = False
        # Without a proxy, which would answer in place of this machine.
        self._browser = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def begin(self) -> None:
        """Begin to watch, when the server is up."""
        self.end()
        if self._masters and self._pages is not None:
            self._over, self._lost = threading.Event(), False
            threading.Thread(
                target=self._watch, args=(self._over,), name="spark-executors", daemon=True
            ).start()

    def end(self) -> None:
        self._over.set()
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether Spark had executors, has none, and a master that could give others is reachable.
        Only another start of Spark ends that. It must have had executors: on a cluster without
        room, nothing is started over and over."""
        return self._lost

    def _watch(self, over: threading.Event) -> None:
        had, none_since = False, time.monotonic()
        while not over.wait(self._look_s):
            count = self._executors()
            if count is None:
                continue
            now = time.monotonic()
            if count:
                had, none_since = True, now
            lost = (
                had and not count and now - none_since >= self._none_s and self._master_is_there()
            )
            if not over.is_set():
                self._lost = lost

    def _executors(self) -> int | None:
        """Return the number of executors besides the driver. None: Spark's pages do not show it."""
        try:
            (application,) = self._asked("applications")
            found = self._asked(f"applications/{application['id']}/executors")
            return len([one for one in found if one["id"] != _DRIVER])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _asked(self, what: str) -> Any:
        with self._browser.open(f"{self._pages}/api/v1/{what}", timeout=_ANSWER_S) as answer:
            return json.load(answer)

    def _master_is_there(self) -> bool:
        return any(listens(host, port) for host, port in self._masters)


def _addresses(master: str) -> list[tuple[str, int]]:
    """Return host and port of each master in ``spark://host:port,host:port``. Other kinds have
    none."""
    if not master.startswith(_STANDALONE):
        return []
    parts = [part.rpartition(":") for part in master.removeprefix(_STANDALONE).split(",")]
    return [(host, int(port)) for host, _, port in parts if port.isdecimal()]
