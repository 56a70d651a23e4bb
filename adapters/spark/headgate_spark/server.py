"""The Spark that Headgate starts itself: one Spark Connect server that all workers share.

The driver outlives its clients, so a worker that is killed costs no start of a JVM. A server that
dies is started again on the same port, and clients come back with new sessions.
"""

import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headgate.errors import MissingExtraError
from headgate_spark.daemon import PRELOAD_VARIABLE
from headgate_spark.driver_watch import TIMEOUT_S, DriverWatch
from headgate_spark.executor_watch import ExecutorWatch
from headgate_spark.files import local_path
from headgate_spark.guard import STOP_TIMEOUT_S, Guarded
from headgate_spark.hosts import LOOPBACK, is_here
from headgate_spark.sessions import OUTAGE_FILE, listens, refuses
from headgate_spark.shipping import write_archive
from headgate_spark.slots import Plan, plan

START_TIMEOUT_S = 300.0
"""How long Spark may take until it listens. A machine with ten times the work that it can do has
needed more than 120 s. A JVM that ends is noticed at once."""
CONTEXT_STOPPED = -1
EXECUTORS_LOST = -2
CONTEXT_LOOK_S = 0.4
"""Whoever asks does so twice a second."""
CONTEXT_REFUSALS = 3
TAIL_LINES = 25
JAVA_VERSION_MIN = 17
FOLDER_MODE = 0o700
FILE_MODE = 0o600
LOCALE = "C.UTF-8"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""A token that Spark Connect asks of its clients, since Spark 4.0."""
_DRIVER_PORT = "spark.driver.port"
_PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
_PYTHON_FILES = "spark.submit.pyFiles"
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ServerError(Exception):
    """Spark could not be started. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a Spark of ours listens, and the token that it asks of its clients."""

    port: int
    ui_port: int
    token: str

    @classmethod
    def new(cls) -> Self:
        """Ports that nobody listens on just now."""
        return cls(free_port(), free_port(), secrets.token_urlsafe(32))

    @property
    def remote(self) -> str:
        """For `SparkSession.builder.remote`."""
        return f"sc://localhost:{self.port}/;token={self.token}"


class SparkServer:
    """Starts, watches and ends one Spark Connect server. Not thread-safe.

    Args:
        master: ``local[N]``, ``local-cluster[executors,cores,MB]`` or a cluster's address. N and
            cores say how many slots are meant to compute; there will be at least `slots`.
        slots: tasks that must run at a time (`headgate_spark.slots.slots_wanted`).
        folder: for the log, the warehouse and scratch files; made if it is not there.
        conf: the user's settings of Spark. What `forced_conf` names is not theirs to set.
        python_path: folders that Python on executors must find besides its own.
        preload: modules that tasks need, loaded once per executor (`headgate_spark.daemon`).
        host: address of this machine that executors reach. Where executors are on other machines,
            Headgate's code is carried to them.
        start_timeout_s: how long the server may take until it listens.
        driver_timeout_s: how long it may then be silent, before it is ended; 0: for ever.
        endpoint: where it listens; None: it finds a place.
    """

    def __init__(
        self,
        master: str,
        slots: int,
        folder: str | os.PathLike[str],
        conf: Mapping[str, str] | None = None,
        *,
        python_path: Sequence[str] = (),
        preload: Sequence[str] = (),
        host: str = LOOPBACK,
        start_timeout_s: float = START_TIMEOUT_S,
        driver_timeout_s: float = TIMEOUT_S,
        endpoint: Endpoint | None = None,
    ) -> None:
        self.plan: Plan = plan(master, slots, os.cpu_count() or 1)
        self.folder = Path(folder).absolute()
        self.endpoint = endpoint or Endpoint.new()
        self.port, self._ui_port = self.endpoint.port, self.endpoint.ui_port
        self._token = self.endpoint.token
        self.starts = 0
        self._conf = dict(conf or {})
        self._python_path = list(python_path)
        self._preload = ",".join(preload)
        self._host = host
        self._shipped: Path | None = None
        """Archive of our code, where executors are on other machines."""
        self._start_timeout_s = start_timeout_s
        self._process: Guarded | None = None
        self._code: int | None = None
        """Exit code of a start that failed."""
        self._context = ContextWatch(host, int(self._conf.get(_DRIVER_PORT, free_port(host))))
        self._executors = ExecutorWatch(self.plan.master, self.ui)
        self._driver = DriverWatch(self.port, driver_timeout_s, self._tell_outage)

    @property
    def address(self) -> str:
        """For `SparkSession.builder.remote`; the same after a restart. A secret: its token lets
        whoever has it run code as this user. (With a token and without TLS, Spark's client talks
        to the name ``localhost`` alone.)"""
        return self.endpoint.remote

    @property
    def ui(self) -> str | None:
        """Address of Spark's own pages; None: the user has switched them off. Who has an account
        on this machine can read them, and change nothing."""
        conf = {**default_conf(self.plan), **self._conf}
        if conf["spark.ui.enabled"].strip().lower() != "true":
            return None
        return f"http://{self._host}:{conf.get('spark.ui.port', self._ui_port)}"

    @property
    def slots(self) -> int:
        return self.plan.slots

    @property
    def cores(self) -> int:
        """Slots that are meant to compute."""
        return self.plan.cores

    @property
    def pid(self) -> int | None:
        """Process id of the driver's JVM."""
        return None if self._process is None else self._process.pid

    @property
    def log_file(self) -> Path:
        return self.folder / "spark.log"

    @property
    def outage_file(self) -> Path:
        """Says why the driver was ended because it stood still, until the next one is up."""
        return self.folder / OUTAGE_FILE

    @property
    def stood_still(self) -> str:
        """The same, until it is started again; empty: it did not stand still."""
        return self._driver.told

    def start(self) -> None:
        """Start the server; returns when it listens.

        Raises:
            ServerError: Java is missing or too old, or the server did not come up in time; the end
                of its log is in the text. Nothing is left running.
        """
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the server and do not wait. Raises `ServerError` as `start` does."""
        assert self._process is None, "the server was started before; use restart"
        java_home = check_java()
        _make_private(self.folder)
        _make_private(self.folder / "scratch")
        if not is_here(self.plan.master):
            self._shipped = write_archive(self.folder / "code")
        if not self.starts:
            self._forget_outage()
        with open(self.log_file, "ab", opener=_private) as log:
            self._process = Guarded(self._command(), self.folder, log, self._environment(java_home))
        self.starts += 1
        self._end_watches()
        self._code = None

    def wait_ready(self) -> None:
        """Wait until the server listens. Raises `ServerError` as `start` does."""
        deadline = time.monotonic() + self._start_timeout_s
        while not listens("127.0.0.1", self.port):
            if (code := self.poll()) is not None:
                self.stop()
                self._code = code
                raise ServerError(f"Spark ended with code {code} while it started{self._tail()}")
            if time.monotonic() > deadline:
                self.stop()
                self._code = -signal.SIGKILL
                raise ServerError(
                    f"Spark does not listen after {self._start_timeout_s:g} s{self._tail()}"
                )
            time.sleep(0.1)
        self._forget_outage()
        self._context.begin()
        self._executors.begin()
        if (process := self._process) is not None:
            self._driver.begin(process)

    def _end_watches(self) -> None:
        self._context.end()
        self._executors.end()
        self._driver.end()

    def _tell_outage(self, why: str) -> None:
        with suppress(OSError), open(self.outage_file, "w", opener=_private) as file:
            file.write(why)

    def _forget_outage(self) -> None:
        self.outage_file.unlink(missing_ok=True)

    def poll(self) -> int | None:
        """Exit code of a server that has died or could not be started, None while it runs and
        after `stop`. Cheap. `CONTEXT_STOPPED`: it has no application any more; `EXECUTORS_LOST`: it
        waits for executors that nobody will give it."""
        if self._process is None:
            return self._code
        code = self._process.poll()
        if code is None and self._context.stopped():
            return CONTEXT_STOPPED
        return EXECUTORS_LOST if code is None and self._executors.lost else code

    def restart(self) -> None:
        """Start it again on the same port, after it has died or not. Raises as `start` does."""
        self.stop()
        self.wait_free()
        self.start()

    def wait_free(self) -> None:
        """Until one that was there before listens no more, as far as that comes soon."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while listens("127.0.0.1", self.port) and time.monotonic() < deadline:
            time.sleep(0.05)

    def stop(self) -> None:
        """End the server and all its executors; returns when they are gone."""
        process, self._process, self._code = self._process, None, None
        self._end_watches()
        if process is not None:
            process.end()

    # -- how it is started --

    def _command(self) -> list[str]:
        settings = {
            **default_conf(self.plan),
            "spark.ui.port": str(self._ui_port),
            _DRIVER_PORT: str(self._context.port),
            **self._conf,
            **self._forced(),
        }
        command = [str(_spark_home() / "bin" / "spark-submit"), "--master", self.plan.master]
        for key, value in sorted(settings.items()):
            command += ["--conf", f"{key}={value}"]
        return [*command, "--class", _CLASS, "--name", "headgate", "spark-internal"]

    def _forced(self) -> dict[str, str]:
        forced = forced_conf(self.plan)
        forced["spark.connect.grpc.binding.address"] = "127.0.0.1"
        forced["spark.connect.grpc.binding.port"] = str(self.port)
        forced["spark.sql.warehouse.dir"] = local_path(self.folder / "warehouse")
        forced["spark.local.dir"] = str(self.folder / "scratch")
        forced[_PYTHON_PATH] = self._path_text()
        forced[f"spark.executorEnv.{PRELOAD_VARIABLE}"] = self._preload
        if not is_here(self.plan.master):
            forced |= self._forced_elsewhere()
        return forced

    def _forced_elsewhere(self) -> dict[str, str]:
        """Settings for executors on other machines. Spark brings files to the folder where an
        executor runs. Its Python runs there, or in a folder of the session below."""
        python = self._conf.get(_PYTHON_FILES, "").split(",")
        files = [*self._conf.get("spark.files", "").split(","), *python]
        if self._shipped is not None:
            files.append(str(self._shipped))
            python.insert(0, str(self._shipped))
        names = [Path(each.strip()).name for each in python if each.strip()]
        paths = [path for name in names for path in (name, f"../{name}")]
        theirs = [self._conf[_PYTHON_PATH]] if _PYTHON_PATH in self._conf else []
        return {
            "spark.driver.host": self._host,
            "spark.driver.bindAddress": self._host,
            "spark.files": ",".join(each.strip() for each in files if each.strip()),
            _PYTHON_FILES: "",
            _PYTHON_PATH: os.pathsep.join([*paths, *self._python_path, *theirs]),
        }

    def _environment(self, java_home: str | None) -> dict[str, str]:
        environment = {
            key: value
            for key, value in os.environ.items()
            # Settings of another Spark on this machine must not get into ours.
            if not key.startswith("SPARK_") and key != "PYSPARK_SUBMIT_ARGS"
        }
        environment["SPARK_HOME"] = str(_spark_home())
        # By a locale of another encoding, or one that this machine lacks, Java finds no file whose
        # name is beyond ASCII, and says nothing.
        environment["LC_ALL"] = LOCALE
        # Not a setting: arguments can be read by all users of the machine.
        environment[TOKEN_VARIABLE] = self._token
        environment["SPARK_LOCAL_IP"] = self._host
        environment["SPARK_WORKER_DIR"] = str(self.folder / "scratch" / "executors")
        environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # The driver tells executors which Python is theirs.
        environment["PYSPARK_PYTHON"] = self._conf.get("spark.pyspark.python", sys.executable)
        environment["PYTHONPATH"] = self._path_text()
        environment[PRELOAD_VARIABLE] = self._preload
        if java_home is not None:
            environment["JAVA_HOME"] = java_home
        return environment

    def _path_text(self) -> str:
        mine = str(Path(__file__).absolute().parent.parent)
        given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
        return os.pathsep.join(dict.fromkeys([*self._python_path, *given, mine]))

    def _tail(self) -> str:
        try:
            lines = self.log_file.read_text("utf-8", "replace").splitlines()
        except OSError:
            return f"; its log {self.log_file} cannot be read"
        if reason := reason_in(lines):
            return f": {reason}; its log is {self.log_file}"
        return "\n".join([f"; the end of its log {self.log_file}:", *lines[-TAIL_LINES:]])


def reason_in(lines: Sequence[str]) -> str:
    """Why Spark ended, as far as its log says it in a line; empty: it does not."""
    text = "\n".join(lines)
    masters = dict.fromkeys(re.findall(r" Failed to connect to master (\S+)$", text, re.M))
    if masters and "All masters are unresponsive" in text:
        return f"no master answers at {', '.join(masters)}: start it, or correct its address"
    for pattern in (r"^\S+ \S+ ERROR \S+ (.+)$", r'^Exception in thread "main" (.+)$'):
        if found := re.search(pattern, text, re.M):
            causes = re.findall(r"^Caused by: (.+)$", text[found.end() :], re.M)
            return "; ".join(dict.fromkeys([found[1].strip(), *causes[-1:]]))
    return ""


def _make_private(folder: Path) -> None:
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    with suppress(PermissionError):  # it was there, another user's
        folder.chmod(FOLDER_MODE)


def _private(path: str, flags: int) -> int:
    """For `open`: for the owner alone, also if it was there."""
    descriptor = os.open(path, flags, FILE_MODE)
    with suppress(PermissionError):
        os.fchmod(descriptor, FILE_MODE)
    return descriptor


def default_conf(plan: Plan) -> dict[str, str]:
    """Settings that a user may override."""
    memory = plan.executor_memory_mb
    return {
        **({} if memory is None else {"spark.executor.memory": f"{memory}m"}),
        "spark.driver.memory": "1g",
        # Slots are only a number: as many parts as slots would be too many.
        "spark.default.parallelism": str(plan.cores),
        "spark.sql.shuffle.partitions": str(plan.cores),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.ui.enabled": "true",
        # Each batch is a job: the pages need not remember a thousand.
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "2000",
        "spark.sql.ui.retainedExecutions": "100",
        "spark.connect.ui.retainedSessions": "20",
        "spark.connect.ui.retainedStatements": "100",
    }


def forced_conf(plan: Plan) -> dict[str, str]:
    """Settings that exactly-once, or coming back in time, depends on."""
    forced = {
        # The second attempt of a resident task would fence the first.
        "spark.speculation": "false",
        # One process is one task: a kill by pid must never meet another's task.
        "spark.python.worker.reuse": "false",
        "spark.python.task.killTimeout": "0ms",
        "spark.python.use.daemon": "true",
        "spark.python.daemon.module": "headgate_spark.daemon",
        # The session that all share must not be closed: its id could not be used again.
        "spark.connect.session.manager.defaultSessionTimeout": "3650d",
        "spark.executor.heartbeatInterval": "3s",
        "spark.network.timeout": "20s",
        "spark.network.timeoutInterval": "5s",  # else a timeout of 20 s is refused
        "spark.storage.blockManagerHeartbeatTimeoutMs": "20000",
        # Executors that were killed must not shut out the host they ran on.
        "spark.excludeOnFailure.enabled": "false",
        "spark.deploy.maxExecutorRetries": "-1",
        # Who may see the pages of Spark may not end its jobs by them.
        "spark.ui.killEnabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if plan.master.startswith("local"):
        forced["spark.driver.host"] = forced["spark.driver.bindAddress"] = "127.0.0.1"
    return forced


def check_java() -> str | None:
    """JAVA_HOME of a Java that Spark can use; None to leave it to the path.

    Raises:
        ServerError: none is there, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = (
        f"install Java {JAVA_VERSION_MIN} or newer (Debian, Ubuntu: openjdk-17-jre-headless; "
        "Fedora: java-17-openjdk-headless; macOS: brew install openjdk@17), set JAVA_HOME, or use "
        'a runner that needs no Java: runner = "process"'
    )
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java on the path"
        raise ServerError(f"Spark needs Java, and there is none ({where}): {advice}")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        seen = (
            f"Java {found[1]}" if found else f"a Java of unknown version ({output.stderr[:80]!r})"
        )
        raise ServerError(f"Spark needs Java {JAVA_VERSION_MIN}, but {java} is {seen}: {advice}")
    return home


class ContextWatch:
    """Notices that the application of a server is gone while the server itself lives on, as when
    the master of a cluster has ended it. The driver's port is closed then. (One that stands still
    keeps its port, and takes no more connections at some time: that is for `DriverWatch`.)

    Args:
        host: address of the driver.
        port: port of the driver. If it had to take another one, nothing is noticed.
    """

    def __init__(self, host: str, port: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._host = host
        self.port = port
        self._watching = False
        self._looked_at = 0.0
        self._refused = 0

    def begin(self) -> None:
        """The server is up."""
        self._watching = listens(self._host, self.port)
        self._refused = 0

    def end(self) -> None:
        self._watching = False

    def stopped(self) -> bool:
        now = self._clock_s()
        if self._watching and now - self._looked_at >= CONTEXT_LOOK_S:
            self._looked_at = now
            self._refused = self._refused + 1 if refuses(self._host, self.port) else 0
        return self._watching and self._refused >= CONTEXT_REFUSALS


def free_port(host: str = LOOPBACK) -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _spark_home() -> Path:
    """Where `pyspark` is installed. It is not loaded: nothing of it is needed to start Spark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise MissingExtraError("spark")
    return Path(found.origin).parent
