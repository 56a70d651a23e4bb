"""The Spark that the workers of one machine share, from a worker's side.

The first worker starts a process that keeps Spark (`headgate_runtime.spark.keeper`). Later workers
with the same settings and the same folder use it, too. A worker that is started again finds Spark
warm.
"""

import hashlib
import importlib.metadata
import os
import platform
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import MissingExtraError
from headgate_runtime.command.errors import EXIT_FAILED, UpError
from headgate_runtime.command.extras import require
from headgate_runtime.config.private_files import (
    FOLDER_MODE,
    make_private_folder,
    private_opener,
)
from headgate_runtime.spark.launcher import HOST, OUTAGE_FILE, START_TIMEOUT
from headgate_runtime.spark.places import FAILED, Joined, Place, Places, Shared
from headgate_runtime.spark.service import check_installed, own_address, shown_remote
from headgate_runtime.spark.settings import DEFAULT_MASTER, SparkSettings
from headgate_runtime.tasks.process_restarts import Restarts

if TYPE_CHECKING:
    from headgate_spark.server import Endpoint, SparkServer

ROOM: Final = 4
"""Workers like the first one for which a Spark has slots. Slots cost nothing: they are only a
number there."""
OF_A_LOGIN: Final = (
    *("_", "COLORTERM", "COLUMNS", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HEADGATE_URL"),
    *("INVOCATION_ID", "JOURNAL_STREAM", "LINES", "LS_COLORS", "OLDPWD", "PS1", "PWD", "SHLVL"),
    *("SSH_AUTH_SOCK", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "STY", "SYSTEMD_EXEC_PID"),
    *("TERM", "TMUX", "TMUX_PANE", "WINDOW", "WINDOWID", "XDG_SESSION_ID"),
)
"""Environment variables that differ from one terminal to the next, and mean nothing to tasks."""


def endpoint_of(shared: Shared) -> "Endpoint":
    from headgate_spark.server import Endpoint

    return Endpoint(**{name: shared.made[name] for name in ("port", "ui_port", "token")})


def default_folder() -> Path:
    """Return the folder of this user in which a Spark is shared by workers that name no folder."""
    return Path(tempfile.gettempdir()) / f"headgate-spark-{os.getuid()}"


class SharedSpark:
    """A worker's share in a Spark. For one thread.

    Args:
        folder: workers with the same folder share Spark. Its log and scratch files go there.
        slots: tasks that this worker may run at a time.
        idle_s: how long Spark waits for another worker after the last has ended.
        warn: called with messages for the user.
        where: the user's name for the setting of the master.
        host_setting: the user's name for the setting of this machine's address.
    """

    def __init__(
        self,
        folder: Path,
        spark: SparkSettings,
        slots: int,
        idle_s: float,
        *,
        warn: Callable[[str], None],
        where: str,
        host_setting: str,
    ) -> None:
        self._folder = folder
        self._spark = spark
        self._slots = slots
        self._idle_s = idle_s
        self._warn = warn
        self._where = where
        self._host_setting = host_setting
        self._host = ""
        self._places = Places(folder, self._spawn)
        self._joined: Joined | None = None
        self._told = 0
        """Bytes of the keeper's notes that were logged."""
        self._keepers: list[subprocess.Popen[bytes]] = []
        """Keepers that this process has started."""
        self._restarts = Restarts()
        self._kept_since = 0.0
        self._revive_at = 0.0
        """Monotonic time before which this worker starts no other keeper. Another worker may do
        so."""
        self._given_up = False

    def start(self) -> None:
        """Return when the address is known. Spark may still be starting: tasks wait for it, and
        `tick` reports how the start ended.

        Raises:
            UpError: pyspark or Java is not installed or too old, the master is invalid, or the
                folder cannot be used.
        """
        try:
            require("pyspark")
        except MissingExtraError as error:
            raise UpError(f'{error} (the runner is spark; "process" needs nothing more)') from None
        check_installed()
        self._host = own_address(self._spark, self._host_setting)
        server = self._planned()
        endpoint = server.endpoint
        made = {
            "port": endpoint.port,
            "ui_port": endpoint.ui_port,
            "token": endpoint.token,
            "slots": self._slots,
            "idle_s": self._idle_s,
            "ui": server.ui,
        }
        master = self._spark.master or DEFAULT_MASTER
        capacity = self._slots * ROOM if master.startswith("local") else None
        asked = self._asked()
        try:
            if self._folder == default_folder():
                _make_own(self._folder)
            else:
                make_private_folder(self._folder)
            joined = self._places.join(
                asked, self._slots, self._idle_s, lambda: Shared(asked, made, capacity)
            )
        except OSError as error:
            raise UpError(
                f"{self._folder}: Spark cannot be started there: {error}; name another folder by "
                "headgate.data",
                EXIT_FAILED,
            ) from None
        self._joined, self._kept_since = joined, time.monotonic()
        for path, why in joined.others.items():
            self._warn(f"the Spark in {path} is not shared: {why}")
        if not joined.started:
            self._told = _size(joined.place.notes)
            pages = joined.shared.made.get("ui")
            self._warn(
                f"this worker uses the Spark that already runs at {shown_remote(self._address())}; "
                f"its log: {joined.place.path / 'spark' / 'spark.log'}"
                + (f"; its pages: {pages}" if pages else "")
            )

    def worker_settings(self) -> dict[str, str]:
        """Return the worker's settings of Spark."""
        from headgate_spark import sessions
        from headgate_spark.server import START_TIMEOUT_S

        assert self._joined is not None, "not started"
        outage = self._joined.place.path / "spark" / sessions.OUTAGE_FILE
        return {
            "remote": self._address(),
            HOST: self._host,
            START_TIMEOUT: f"{START_TIMEOUT_S:g}",
            OUTAGE_FILE: str(outage),
        }

    def tick(self) -> None:
        """Log the keeper's messages, and start another keeper if it has died.

        Raises:
            UpError: Spark could not be started. The end of its log is in the text.
        """
        if self._joined is None or self._given_up:
            return
        self._tell_notes(self._joined.place)
        self._keepers = [keeper for keeper in self._keepers if keeper.poll() is None]
        state = self._joined.place.state()
        if state.kind == FAILED:
            raise UpError(state.text, state.code)
        if time.monotonic() < self._revive_at:
            return
        try:
            revived = self._places.revive(self._joined)
        except OSError as error:
            self._give_up(f"{self._folder}: nothing can be started there: {error}")
            return
        if revived:
            self._revived()

    def close(self) -> None:
        """Leave the Spark. It ends if no other worker uses it, and none comes soon."""
        if self._joined is not None:
            self._tell_notes(self._joined.place)
            self._places.leave(self._joined)
            self._joined = None
        for keeper in self._keepers:
            keeper.returncode = keeper.poll() or 0  # it outlives this process

    # -- what is shared --

    def _planned(self) -> "SparkServer":
        """Return the server as it would be, not started. Raises `UpError`: it could not be."""
        from headgate_spark.server import ServerError, SparkServer, check_java
        from headgate_spark.slots import SlotsError

        master = self._spark.master or DEFAULT_MASTER
        try:
            server = SparkServer(
                master, self._slots, self._folder, dict(self._spark.conf), host=self._host
            )
            check_java()
        except SlotsError as error:
            raise UpError(f"{self._where}: {error}") from None
        except ServerError as error:
            raise UpError(str(error)) from None
        return server

    def _asked(self) -> dict[str, object]:
        """Return the settings that must be equal for workers that share a Spark, as JSON has
        them."""
        environment = {
            name: _digest(value) for name, value in os.environ.items() if name not in OF_A_LOGIN
        }
        return {
            "machine": platform.node(),
            "master": self._spark.master or DEFAULT_MASTER,
            "host": self._host,
            "driver.timeout.ms": self._spark.driver_timeout_ms,
            "settings": dict(self._spark.conf),
            "python": sys.executable,
            "versions": {name: _version(name) for name in ("headgate", "pyspark")},
            "environment variable": environment,
        }

    def _address(self) -> str:
        assert self._joined is not None, "not started"
        return endpoint_of(self._joined.shared).remote

    # -- its keeper --

    def _spawn(self, place: Place, lock: int) -> None:
        module = "headgate_runtime.spark.keeper"
        paths = str(self._folder), str(place.path)
        command = [sys.executable, "-P", "-m", module, *paths, str(lock)]
        with open(place.keeper_log, "ab", opener=private_opener) as log:
            # Ctrl-C at this worker's terminal is not meant for the keeper.
            keeper = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=place.path,
                pass_fds=(lock,),
                start_new_session=True,
            )
        self._keepers.append(keeper)

    def _revived(self) -> None:
        assert self._joined is not None, "not started"
        now = time.monotonic()
        lived, self._kept_since = now - self._kept_since, now
        log = self._joined.place.keeper_log
        pause = self._restarts.ended(answered=True, lived_s=lived)
        if pause is None:
            self._give_up(
                f"the process that keeps Spark ends again and again: {self._restarts.why()}; "
                f"see {log}"
            )
            return
        self._revive_at = now + pause
        self._warn(f"the process that keeps Spark had ended, and is started again (log: {log})")

    def _give_up(self, why: str) -> None:
        self._given_up = True
        self._warn(f"Spark is given up: {why}")

    def _tell_notes(self, place: Place) -> None:
        try:
            with place.notes.open("rb") as notes:
                notes.seek(self._told)
                text = notes.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._told += len(whole)
        for note in whole.decode("utf-8", "replace").replace("\n\t", "\0").splitlines():
            self._warn(note.replace("\0", "\n"))


def _make_own(folder: Path) -> None:
    """Make a folder of this user. Raises OSError: it cannot be made, or another user has made
    it."""
    folder.mkdir(FOLDER_MODE, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError("it belongs to another user")
    make_private_folder(folder)


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
