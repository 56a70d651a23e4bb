"""Starts a Spark, watches it and starts it again. It serves all workers of a ``headgate up``, or
the process that keeps Spark for the ``headgate worker`` processes of a machine.

There are three cases: a Spark Connect server of our own (``[spark] master``), one that runs
elsewhere (``remote``), and that of the `headgate up` that we join. With ``remote``, slots are
counted before anything starts.
"""

import contextlib
import importlib.metadata
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headgate.errors import MissingExtraError
from headgate.topics.config_events import Config
from headgate_runtime.command.errors import EXIT_FAILED, UpError
from headgate_runtime.command.extras import require
from headgate_runtime.config.private_files import private_opener, write_private
from headgate_runtime.spark.launcher import HOST, OUTAGE_FILE, START_TIMEOUT
from headgate_runtime.spark.settings import DEFAULT_MASTER, SparkSettings
from headgate_runtime.tasks.process_restarts import Restarts

if TYPE_CHECKING:
    from headgate_spark.server import Endpoint, SparkServer

ADDRESS_FILE = "spark.json"
RUNNER = "spark"
EMBEDDED = "headgate_embedded"
PRELOAD = ("headgate_runtime.tasks.main",)
"""Modules that every task imports, loaded once by the process that forks them."""

WARM_UP_S = 120.0
"""Limit for the first job, in seconds. A driver that is gone ends it."""

Warn = Callable[[str], None]
Marked = Callable[[str, str], None]


class Wanted(Protocol):
    """The work to be run there: a pipeline, or a replacement for one."""

    @property
    def runner(self) -> str: ...

    @property
    def workers(self) -> int: ...

    @property
    def data(self) -> Path:
        """Folder for logs and scratch files."""
        ...

    @property
    def spark(self) -> SparkSettings: ...


@dataclass(frozen=True, slots=True)
class WorkerSpark:
    """`Wanted` for workers without a pipeline file."""

    runner: str
    data: Path
    spark: SparkSettings
    workers: int = 1


class SparkService:
    """A Spark for workers. For one thread; slow work happens on another, internal one."""

    def __init__(
        self,
        pipeline: Wanted,
        *,
        warn: Warn,
        marked: Marked,
        join: bool = False,
        adapter: str = EMBEDDED,
        where: str = "[spark] master",
        host_setting: str = "[spark] host",
        tasks_per_process: int = 1,
        endpoint: "Endpoint | None" = None,
        warms_up: bool = False,
    ) -> None:
        """
        Args:
            join: use the Spark of the cluster on the same data.
            adapter: package of the log, which every task imports, too.
            where: the user's name for the setting of the master.
            host_setting: the user's name for the setting of this machine's address.
            tasks_per_process: how many tasks share a slot.
            endpoint: where a Spark of our own listens. None: it finds free ports.
            warms_up: run a job as soon as a Spark of our own is up, for tasks that come later.
        """
        self._pipeline = pipeline
        self._adapter = adapter
        self._where = where
        self._host_setting = host_setting
        self._join = join
        self._tasks_per_process = tasks_per_process
        self._endpoint = endpoint
        self._warms_up = warms_up
        self._warn = warn
        self._marked = marked
        self._address: str | None = None
        self._host = ""
        """Address of this machine that executors reach."""
        self._server: SparkServer | None = None
        self._restarts = Restarts()
        self._started_at = 0.0
        self._starting: threading.Thread | None = None
        self._failed: UpError | None = None
        """Why the first start failed."""
        self._closed = False
        self._restarting: threading.Thread | None = None
        self._restart_at: float | None = None
        self._given_up = False

    def start(self, tasks_max: Sequence[int]) -> None:
        """Return when the address is known. A Spark of our own may still be starting: its tasks
        wait for it, and `tick` reports how the start ended.

        Args:
            tasks_max: `tasks.max` of each connector.

        Raises:
            UpError: pyspark is not installed, or Spark is missing, too old, or has too few slots.
        """
        if self._pipeline.runner != RUNNER:
            return
        try:
            require("pyspark")
        except MissingExtraError as error:
            raise UpError(f'{error} (the runner is spark; "process" needs nothing more)') from None
        check_installed()
        self._host = own_address(self._pipeline.spark, self._host_setting)
        if self._join:
            self._address = _joined_address(self._pipeline.data)
        elif self._pipeline.spark.remote is not None:
            self._address = self._pipeline.spark.remote
            self._check_remote(self._address, tasks_max)
        else:
            self._start_own(tasks_max)

    @property
    def ui(self) -> str | None:
        """Address of Spark's own web pages, if it is ours and has them."""
        return None if self._server is None else self._server.ui

    def worker_settings(self) -> dict[str, str]:
        """Return the worker's settings of Spark."""
        if self._address is None:
            return {}
        reached = {"remote": self._address, HOST: self._host}
        if self._server is None and not self._join:
            return reached
        from headgate_spark import sessions
        from headgate_spark.server import START_TIMEOUT_S

        outage = self._folder.absolute() / sessions.OUTAGE_FILE
        return {**reached, START_TIMEOUT: f"{START_TIMEOUT_S:g}", OUTAGE_FILE: str(outage)}

    def tick(self) -> None:
        """Notice that our Spark has died, and start it again.

        Raises:
            UpError: the first start failed. The end of Spark's log is in the text.
        """
        if self._server is None or self._given_up:
            return
        if self._starting is not None:
            if self._starting.is_alive():
                return
            self._starting = None
        if self._failed is not None:
            raise self._failed
        if self._restarting is not None:
            if self._restarting.is_alive():
                return
            self._restarting = None
        now = time.monotonic()
        code = self._server.poll()
        if code is None:
            return
        if self._restart_at is None:
            self._ended(now, code)
        elif now >= self._restart_at:
            self._restart_at = None
            self._restarting = threading.Thread(target=self._restart, daemon=True)
            self._restarting.start()

    def close(self) -> None:
        if self._server is None:
            return
        self._closed = True
        self._address_file.unlink(missing_ok=True)
        if self._restarting is not None:
            self._restarting.join(1.0)
        self._server.stop()

    # -- a Spark of our own --

    @property
    def _address_file(self) -> Path:
        return self._pipeline.data / ADDRESS_FILE

    @property
    def _folder(self) -> Path:
        """The server's own folder."""
        return self._pipeline.data / "spark"

    def _start_own(self, tasks_max: Sequence[int]) -> None:
        from headgate_spark.hosts import is_here
        from headgate_spark.server import ServerError, SparkServer
        from headgate_spark.slots import SlotsError, slots_wanted

        spark = self._pipeline.spark
        master = spark.master or DEFAULT_MASTER
        if self._adapter == EMBEDDED and not is_here(master):
            self._warn(
                f"{self._where} is {master}: its executors must run on this machine, because the "
                "log is a file of it; for those on other machines use headgate worker on Kafka"
            )
        slots = slots_wanted(self._pipeline.workers, tasks_max, self._tasks_per_process)
        try:
            self._server = SparkServer(
                master,
                slots,
                self._folder,
                dict(spark.conf),
                preload=(*PRELOAD, self._adapter),
                host=self._host,
                driver_timeout_s=spark.driver_timeout_ms / 1000,
                endpoint=self._endpoint,
            )
        except SlotsError as error:
            raise UpError(f"{self._where}: {error}") from None
        except ServerError as error:
            raise UpError(str(error)) from None
        self._warn(
            f"starting Spark ({self._server.plan.master}), which takes some seconds; its log, with "
            f"what tasks there print: {self._server.log_file}"
        )
        try:
            self._server.wait_free()
            self._server.launch()
        except ServerError as error:  # there is no Java to start it with
            raise UpError(str(error)) from None
        self._address = self._server.address
        known = {"address": self._address, "ui": self._server.ui}
        write_private(self._address_file, json.dumps(known) + "\n")
        self._starting = threading.Thread(
            target=self._first_start, args=(self._server, time.monotonic()), daemon=True
        )
        self._starting.start()

    def _first_start(self, server: "SparkServer", begun: float) -> None:
        """Wait for the server. Its error is raised by `tick`."""
        from headgate_spark.server import ServerError

        try:
            server.wait_ready()
        except ServerError as error:
            self._failed = UpError(str(error), EXIT_FAILED)
            return
        self._started_at = time.monotonic()
        if not self._closed:
            self._warn(
                f"Spark is up at {shown_remote(server.address)} "
                f"after {self._started_at - begun:.1f} s{_pages(server)}"
            )
        if self._warms_up:
            threading.Thread(target=self._warm_up, args=(server,), daemon=True).start()

    def _warm_up(self, server: "SparkServer") -> None:
        """Run a first job. If it cannot run, tasks cannot either."""
        command = [sys.executable, "-P", "-m", "headgate_spark.warm_up"]
        with open(server.log_file, "ab", opener=private_opener) as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self._folder
            )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(server.address.encode() + b"\n", WARM_UP_S)
        process.kill()
        if process.wait() and not self._closed and server.poll() is None:
            self._warn(f"the first job on Spark failed; see {server.log_file}")

    def _ended(self, now: float, code: int) -> None:
        from headgate_spark.server import EXECUTORS_LOST

        assert self._server is not None
        lost = code == EXECUTORS_LOST
        what = "Spark has lost its executors and gets no others" if lost else "Spark ended"
        what = self._server.stood_still or what
        lived = now - self._started_at
        pause = self._restarts.ended(answered=True, lived_s=lived)
        self._marked("Spark", "ended")
        if pause is None:
            self._given_up = True
            self._warn(
                f"{what} and is given up: {self._restarts.why()}; see {self._server.log_file}"
            )
            return
        self._restart_at = now + pause
        self._warn(f"{what}; it starts again in {pause:g} s (log: {self._server.log_file})")

    def _restart(self) -> None:
        from headgate_spark.server import ServerError

        assert self._server is not None
        try:
            self._server.restart()
        except ServerError as error:
            self._warn(f"Spark could not be started again: {error}")
            return  # `tick` finds that it has ended once more
        self._started_at = time.monotonic()
        self._warn(
            f"Spark is up again at {shown_remote(self._server.address)}{_pages(self._server)}"
        )
        self._marked("Spark", "up again")

    @property
    def given_up(self) -> bool:
        return self._given_up

    @property
    def was_up(self) -> bool:
        """Whether a Spark of our own has listened once."""
        return self._started_at > 0

    # -- a Spark of others --

    def _check_remote(self, remote: str, tasks_max: Sequence[int]) -> None:
        from headgate_spark.check import check_slots
        from headgate_spark.slots import SlotsError

        self._warn(f"counting the free slots of Spark at {shown_remote(remote)}")
        try:
            check_slots(remote, self._pipeline.workers, tasks_max, self._tasks_per_process)
        except SlotsError as error:
            raise UpError(str(error)) from None


def own_address(spark: SparkSettings, setting: str) -> str:
    """Return this machine's address for executors. Raises UpError: it is not known how they reach
    it."""
    from headgate_spark.hosts import HostError, address_for

    try:
        return address_for(spark.remote or spark.master or DEFAULT_MASTER, spark.host, setting)
    except HostError as error:
        raise UpError(str(error)) from None


def check_installed() -> None:
    """Check the installed pyspark. Raises UpError: it is too old."""
    from headgate_spark.check import check_version
    from headgate_spark.slots import SlotsError

    try:
        check_version("the pyspark that is installed", importlib.metadata.version("pyspark"))
    except SlotsError as error:
        raise UpError(f'{error}: pip install "headgate[spark]"') from None


def _pages(server: "SparkServer") -> str:
    """Return words about Spark's web pages."""
    return "" if server.ui is None else f"; its pages: {server.ui}"


def _joined_address(data: Path) -> str:
    try:
        return str(json.loads((data / ADDRESS_FILE).read_text())["address"])
    except (OSError, ValueError, KeyError):
        raise UpError(
            f"the cluster on {data} has no Spark that could be joined: its runner is another one, "
            "or it has just begun"
        ) from None


def shown_remote(remote: str) -> str:
    """Return the address of a Spark Connect server without secrets."""
    from headgate_spark import sessions

    return sessions.shown_remote(remote)


def tasks_max_of(connectors: Mapping[str, Config]) -> list[int]:
    """Return `tasks.max` of each connector, or 1 if it has no usable value."""
    found = []
    for config in connectors.values():
        text = (config.get("tasks.max") or "1").strip()
        found.append(int(text) if text.isascii() and text.isdecimal() else 1)
    return found
