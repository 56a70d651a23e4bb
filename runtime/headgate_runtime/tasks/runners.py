"""The runner around a launcher: lifelines, deadlines, kills and reports, the same for every
launcher.

`RunMachine` makes every decision. Here its inputs are gathered under one lock and its outputs
performed, so reports leave in the order in which they were decided.
"""

import secrets
import threading
from collections.abc import Callable
from typing import Any

from headgate import wire
from headgate.ports import Launcher, Reporter
from headgate.task import run as life
from headgate.task.messages import StopTask, TaskCommand, TaskSpec
from headgate_runtime.tasks.launching import (
    CLOSE_LIMIT_MS,
    START_LIMIT_MS,
    TICK_S,
    Beats,
    is_gone,
    kill_launched,
    kill_process,
    launch,
)
from headgate_runtime.tasks.lifeline import monotonic_ms
from headgate_runtime.tasks.log_lines import relog
from headgate_runtime.tasks.protocol import (
    Beat,
    FromTask,
    Hello,
    Invitation,
    Logged,
    Welcome,
    is_here,
)
from headgate_runtime.tasks.server import Connection, LifelineServer


class _Run:
    def __init__(self, spec: TaskSpec, limit_ms: int, start_limit_ms: int) -> None:
        self.spec = spec
        self.token = secrets.token_hex(16)
        self.machine = life.RunMachine(
            monotonic_ms(), limit_ms, start_limit_ms, life.graceful_ms(spec)
        )
        self.hello: Hello | None = None
        self.connection: Connection | None = None
        self.early: list[TaskCommand] = []
        """Commands that came before the body connected."""


class LaunchedRunner:
    """Runs bodies that a `Launcher` starts, each with a lifeline of its own."""

    def __init__(
        self,
        launcher: Launcher,
        report: Reporter,
        server: LifelineServer,
        *,
        silence_limit_ms: int = 5_000,
        start_limit_ms: int = START_LIMIT_MS,
        alive: Callable[[], bool] | None = None,
    ) -> None:
        """Send beats only while `alive` returns True, that is, while the herder is served."""
        self._launcher = launcher
        self._report = report
        self._server = server
        self._limit_ms = silence_limit_ms
        self._start_limit_ms = start_limit_ms
        self._beats = Beats(silence_limit_ms, alive or (lambda: True))
        self._lock = threading.RLock()
        self._runs: dict[str, _Run] = {}
        self._closed = threading.Event()
        server.add(self)
        threading.Thread(target=self._supervise, name="headgate-task-runner", daemon=True).start()

    # -- the port --

    def start(self, spec: TaskSpec) -> None:
        run = _Run(spec, self._limit_ms, self._start_limit_ms)
        with self._lock:
            if spec.run in self._runs:
                raise ValueError(f"run {spec.run} was started before")
            self._runs[spec.run] = run
        argument = wire.dumps(
            Invitation(spec.run, str(spec.task), self._server.host, self._server.port, run.token)
        ).decode()
        launch(
            self._launcher,
            spec.run,
            str(spec.task),
            argument,
            lambda over: self._give(spec.run, over),
        )

    def send(self, run: str, command: TaskCommand) -> None:
        with self._lock:
            found = self._runs.get(run)
            if found is None:
                return
            if found.connection is None:
                found.early.append(command)
                return
            connection = found.connection
        connection.say(command)

    def stop(self, run: str, grace_ms: int) -> None:
        self.send(run, StopTask())
        self._give(run, life.StopRequested(grace_ms))

    def close(self) -> None:
        with self._lock:
            runs = list(self._runs)
        for run in runs:
            self._give(run, life.KillRequested("the runner was closed"))
        self._launcher.close()
        deadline_ms = monotonic_ms() + CLOSE_LIMIT_MS
        while self._runs and monotonic_ms() < deadline_ms:
            self._closed.wait(TICK_S)
        self._closed.set()

    # -- what the launcher and the lifelines tell --

    def token(self, run: str) -> str | None:
        with self._lock:
            found = self._runs.get(run)
            return found.token if found is not None else None

    def arrived(self, hello: Hello, connection: Connection) -> bool:
        with self._lock:
            found = self._runs.get(hello.run)
            if found is None:
                return False
            outputs = found.machine.handle(monotonic_ms(), life.HelloReceived(is_here(hello)))
            if life.Welcome() not in outputs:
                return False
            found.hello, found.connection = hello, connection
            connection.say(Welcome(found.spec, self._limit_ms, logs=True, calls=True))
            for command in found.early:
                connection.say(command)
            return True

    def reported(self, run: str, message: Any) -> None:
        heard = isinstance(message, Beat | Hello | Logged | FromTask)
        self._give(run, life.Heard() if heard else life.BodyReported(message))
        if isinstance(message, Logged):
            with self._lock:
                found = self._runs.get(run)
            if found is not None:
                relog(str(found.spec.task), message)

    def left(self, run: str) -> None:
        self._give(run, life.ConnectionClosed())

    # -- decisions and what follows from them --

    def _give(self, run: str, given: life.RunInput) -> None:
        with self._lock:
            found = self._runs.get(run)
            if found is None:
                return
            for output in found.machine.handle(monotonic_ms(), given):
                self._perform(run, found, output)
            if found.machine.released:
                self._runs.pop(run, None)

    def _perform(self, run: str, found: _Run, output: life.RunOutput) -> None:
        match output:
            case life.Forward(report):
                self._report(run, report)
            case life.KillLaunched():
                kill_launched(self._launcher, run, str(found.spec.task))
            case life.KillBody():
                kill_process(str(found.spec.task), found.hello)
            case life.Disconnect():
                if found.connection is not None:
                    found.connection.close()
            case life.Welcome() | life.Refuse():
                raise AssertionError(f"{output} answers a hello only")

    def _supervise(self) -> None:
        while not self._closed.wait(TICK_S):
            beat = self._beats.due()
            with self._lock:
                runs = list(self._runs.items())
            for run, found in runs:
                if beat and found.connection is not None:
                    found.connection.say(Beat())
                if is_gone(found.hello, found.machine.watching_pid):
                    self._give(run, life.BodyDead())
                self._give(run, life.Tick())
