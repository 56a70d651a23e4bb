"""Keeps the Spark that workers share, in a process of its own, started by the first worker.

Run it as ``python -m headgate_runtime.spark.keeper FOLDER PLACE LOCK``. It starts Spark, watches
it, and starts it again if it ends. Some time after the last worker it ends, and Spark with it.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from headgate_runtime.command.errors import UpError
from headgate_runtime.config.private_files import private_opener
from headgate_runtime.spark.places import FAILED, GIVEN_UP, Place, Places, State
from headgate_runtime.spark.service import SparkService, WorkerSpark
from headgate_runtime.spark.settings import SparkSettings
from headgate_runtime.spark.shared import ROOM, endpoint_of

LOOK_S: Final = 0.5
TOUCH_S: Final = 3600.0


class Idleness:
    """How long a Spark has been unused. Pure: it is told of the users at each look, and says when
    to end.

    Args:
        patience_s: how long it waits if it has never seen a worker.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None

    def is_over(self, now: float, idle_s: list[float]) -> bool:
        """Note a look. Return whether the Spark has been unused for long enough.

        Args:
            idle_s: for each worker that uses the Spark, how long to wait for another one after it.
        """
        if idle_s:
            self._patience_s, self._since = max(idle_s), None
            return False
        if self._since is None:
            self._since = now
        return now - self._since >= self._patience_s


class Keeper:
    """The process that keeps a Spark.

    Args:
        stopped: set when it must end even if workers use the Spark.
    """

    def __init__(self, places: Places, place: Place, stopped: threading.Event) -> None:
        self._places = places
        self._place = place
        self._stopped = stopped

    def run(self) -> None:
        shared = self._place.shared()
        assert shared is not None, f"{self._place.path} was not begun"
        asked = shared.asked
        spark = SparkSettings(
            master=asked["master"],
            conf=asked["settings"],
            host=asked["host"],
            driver_timeout_ms=asked["driver.timeout.ms"],
        )
        service = SparkService(
            WorkerSpark("spark", self._place.path, spark, workers=ROOM),
            warn=self._say,
            marked=lambda _who, _what: None,
            adapter="headgate_kafka",
            endpoint=endpoint_of(shared),
            warms_up=True,
        )
        try:
            service.start([shared.made["slots"]] * ROOM)
            self._watch(service, Idleness(shared.made["idle_s"]))
        except UpError as error:
            if self._place.was_up():  # it may come up again: workers have another keeper started
                self._say(f"Spark could not be started again: {error}")
            else:
                self._place.tell_state(State(FAILED, str(error), error.exit_code))
        finally:
            service.close()

    def _watch(self, service: SparkService, idleness: Idleness) -> None:
        """Watch Spark until no worker uses it any more. Raises `UpError`: Spark could not be
        started."""
        touched = time.monotonic()
        while not self._stopped.wait(LOOK_S):
            service.tick()
            if service.was_up and not self._place.was_up():
                self._place.tell_up()
            if time.monotonic() - touched >= TOUCH_S:
                self._places.touch(self._place)
                touched = time.monotonic()
            if service.given_up and not self._place.state().kind:
                self._place.tell_state(State(GIVEN_UP))
            try:
                idle_s = [each for _, each in self._places.users(self._place)]
                is_over = idleness.is_over(time.monotonic(), idle_s)
                if is_over and self._places.close_if_unused(self._place):
                    return
            except OSError:  # the folder was removed: no worker can join any more
                return

    def _say(self, text: str) -> None:
        """Write a note for the workers. If the disk has no room for it, it is lost, and Spark goes
        on."""
        with (
            contextlib.suppress(OSError),
            open(self._place.notes, "a", encoding="utf-8", opener=private_opener) as notes,
        ):
            notes.write(text.replace("\n", "\n\t") + "\n")


def main(folder: str, place: str, lock: str) -> None:
    # The processes started here must not hold the lock that shows that the keeper is alive.
    os.set_inheritable(int(lock), False)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    places = Places(Path(folder), lambda _place, _lock: None)
    Keeper(places, Place(Path(place)), stopped).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
