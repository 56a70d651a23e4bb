"""Runs Java programs of the pinned jars. They are started under a guard process, and can be
stopped, killed and frozen."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headgate_spark.guard import Guarded
from local_kafka.jars import COMPILER, class_path, java

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""JVM options for a start within a second or two, and for little memory. Benches leave them out."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
TAIL_LINES = 25
_LOGGING = Path(__file__).parent / "log4j2.xml"
_PORTS = range(20000, 32000)
"""Ports for servers, below those that systems give to outgoing connections. Otherwise a client
could get the port of a server that is down, and the server could not start again."""


class JvmError(Exception):
    """A Java program did not start, or ended. The text has the end of its log."""


class Jvm:
    """One Java program. It ends with this process, in whatever way that ends. Not thread-safe.

    Args:
        folder: working folder, with the log ``NAME.log``. It is created if needed.
        name: name of the program in messages.
        command: the main class and its arguments.
        heap_mb: maximum heap size in MiB.
        flags: further options of the JVM.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        command: Sequence[str],
        *,
        heap_mb: int,
        flags: Sequence[str] = QUICK,
    ) -> None:
        self.folder = folder
        self.name = name
        self._command = (f"-Xmx{heap_mb}m", *flags, *command)
        self._process: Guarded | None = None

    @property
    def log_file(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        assert self._process is not None and self._process.pid is not None, "it does not run"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, ready: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the program. Returns when `ready` returns True. Raises `JvmError` after killing the
        program."""
        assert self._process is None, f"{self.name} was started before"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [java(), f"-Dlog4j2.configurationFile={_LOGGING}", *self._command]
        with self.log_file.open("ab") as log:
            self._process = Guarded(command, self.folder, log, _environment())
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                code = self._process.poll()
                self.kill()
                raise JvmError(f"{self.name} ended with code {code} while it started{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise JvmError(f"{self.name} is not ready after {timeout_s:g} s{self.tail()}")
            time.sleep(0.05)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send SIGTERM and wait. The program is killed if it does not end in time."""
        if self._process is None:
            return
        self.thaw()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kill the program (SIGKILL). Returns when it has ended. It can be started again."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def freeze(self) -> None:
        """Freeze the program (SIGSTOP). Its connections stay open. It does nothing once this
        returns."""
        self._signal(signal.SIGSTOP)
        # Until the signal is delivered, a thread that computes may run on for a moment.
        threads = Path(f"/proc/{self.pid}/task")
        while self.running and any(_runs(thread) for thread in threads.glob("*/stat")):
            time.sleep(0.001)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def tail(self) -> str:
        """Return the end of the program's log, as part of a message."""
        try:
            lines = self.log_file.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]
        except OSError:
            return f"; its log {self.log_file} cannot be read"
        return "\n".join([f"; the end of its log {self.log_file}:", *lines])

    def _signal(self, number: int) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class OnJvm:
    """A server in a Java program, which can be stopped, killed and frozen."""

    jvm: Jvm

    def stop(self) -> None:
        """Send SIGTERM and wait. A worker then leaves its group."""
        self.jvm.stop()

    def kill(self) -> None:
        """Kill the server (SIGKILL). Returns when it has ended."""
        self.jvm.kill()

    def freeze(self) -> None:
        """Freeze the server (SIGSTOP). Its connections stay open, but it answers nothing and sends
        no heartbeat, and it does not notice that it was frozen."""
        self.jvm.freeze()

    def thaw(self) -> None:
        self.jvm.thaw()


def _runs(stat: Path) -> bool:
    """Return whether a thread, given by its file in ``/proc``, is neither stopped nor gone."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "TtZX"
    except OSError:
        return False


def run(command: Sequence[str]) -> str:
    """Run a Java program on Kafka's jars to its end, and return its output. Raises `JvmError` for
    an exit code other than 0."""
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise JvmError(f"{' '.join(command)} ended with code {done.returncode}:\n{said}")
    return done.stdout


def compile_java(source: Path, into: Path, more: Path | None = None) -> None:
    """Compile `source` against Kafka's jars, also if the Java installation has no compiler.

    Args:
        more: list of pinned jars that are needed besides Kafka's.

    Raises:
        JvmError: the source does not compile.
    """
    compiler = [java(), *QUICK, "-jar", class_path(COMPILER), "-17", "-nowarn"]
    jars = class_path() if more is None else os.pathsep.join((class_path(), class_path(more)))
    run([*compiler, "-cp", jars, "-d", str(into), str(source)])


def open_java(
    classes: Path,
    main: str,
    arguments: Sequence[str] = (),
    *,
    heap_mb: int = 256,
    flags: Sequence[str] = QUICK,
    more: Path | None = None,
) -> "subprocess.Popen[str]":
    """Start a class that was compiled into `classes`. The caller talks to it by stdin and stdout.

    The program must end when its stdin is closed. Its stderr is the caller's.
    """
    options = [f"-Xmx{heap_mb}m", *flags, f"-Dlog4j2.configurationFile={_LOGGING}"]
    environment = _environment()
    jars = () if more is None else (class_path(more),)
    environment["CLASSPATH"] = os.pathsep.join((str(classes), environment["CLASSPATH"], *jars))
    return subprocess.Popen(
        [java(), *options, main, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def free_ports(count: int) -> list[int]:
    """Return ports that no process listens on now, and that no outgoing connection is given."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise JvmError(f"of the ports {_PORTS.start} to {_PORTS.stop - 1} not {count} are free")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _environment() -> dict[str, str]:
    # Java 17 takes the encoding of files and of stdin from the locale.
    return {**os.environ, "CLASSPATH": class_path(), "LC_ALL": "C.UTF-8"}
