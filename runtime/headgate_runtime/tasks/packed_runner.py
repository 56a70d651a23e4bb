"""The runner that puts several tasks into one process. Its hosts are started by a `Launcher`.

A host has one lifeline for all of its tasks. `HostMachine` makes every decision about a host and
its tasks. Here its inputs are gathered under one lock and its outputs performed, so reports leave
in the order in which they were decided.
"""

import logging
import queue
import secrets
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from headgate import wire
from headgate.ports import Launcher, Reporter
from headgate.task import host as hosting
from headgate.task import run as life
from headgate.task.company import Company
from headgate.task.messages import StopTask, TaskCommand, TaskEnded, TaskReleased, TaskSpec
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
    AbandonTask,
    Beat,
    EndHost,
    ForTask,
    FromTask,
    Hello,
    HostWelcome,
    Invitation,
    Logged,
    StartTask,
    is_here,
)
from headgate_runtime.tasks.server import Connection, LifelineServer

_log = logging.getLogger("headgate.task")

_Caller: TypeAlias = tuple[Hello, Connection]

IDLE_MS = 30_000
"""How long an empty host is kept: tasks that a rebalance stops are soon started again."""


class _Host:
    """The worker's view of a host. `room` is the number of tasks meant for it."""

    def __init__(self, name: str, room: int, machine: hosting.HostMachine) -> None:
        self.name = name
        self.room = room
        self.id = f"{name}/{secrets.token_hex(8)}"
        self.token = secrets.token_hex(16)
        self.machine = machine
        self.hello: Hello | None = None
        self.connection: Connection | None = None
        self._words: queue.SimpleQueue[object] = queue.SimpleQueue()

    def connected(self, hello: Hello, connection: Connection) -> None:
        self.hello, self.connection = hello, connection
        threading.Thread(target=self._say, args=(connection,), name=self.name, daemon=True).start()

    def say(self, message: object) -> None:
        """Queue a message. Returns at once, because a frozen host does not read."""
        self._words.put(message)

    def hang_up(self) -> None:
        self._words.put(None)
        if self.connection is not None:
            self.connection.close()

    def _say(self, connection: Connection) -> None:
        while (message := self._words.get()) is not None:
            if not connection.say(message):
                return


class _Placed:
    """A task that is not released yet."""

    def __init__(self, spec: TaskSpec, host: _Host) -> None:
        self.spec = spec
        self.host = host
        self.begun = False
        self.early: list[TaskCommand] = []
        """Commands that came before its host was connected."""


class PackedRunner:
    """Runs up to `room` tasks in each process that the `Launcher` starts.

    Tasks that may have crashed a process get processes of fewer tasks (`Company`), as far as more
    processes are allowed. A process that waits for a slot of Spark would wait as long as all others
    run.
    """

    def __init__(
        self,
        launcher: Launcher,
        report: Reporter,
        server: LifelineServer,
        room: int,
        *,
        silence_limit_ms: int = 5_000,
        start_limit_ms: int = START_LIMIT_MS,
        idle_ms: int = IDLE_MS,
        spare: int | None = None,
        alive: Callable[[], bool] | None = None,
    ) -> None:
        """
        Args:
            spare: how many processes are allowed beyond those that the tasks fill. None: any
                number.
            alive: beats are sent only while it returns True, that is, while the herder is served.
        """
        self._launcher = launcher
        self._report = report
        self._server = server
        self._room = room
        self._spare = spare
        self._company = Company(room)
        self._limit_ms = silence_limit_ms
        self._start_limit_ms = start_limit_ms
        self._idle_ms = idle_ms
        self._beats = Beats(silence_limit_ms, alive or (lambda: True))
        self._lock = threading.RLock()
        self._hosts: dict[str, _Host] = {}
        self._placed: dict[str, _Placed] = {}
        self._started = 0
        self._closed = threading.Event()
        server.add(self)
        threading.Thread(target=self._supervise, name="headgate-task-hosts", daemon=True).start()

    # -- the port --

    def start(self, spec: TaskSpec) -> None:
        with self._lock:
            if spec.run in self._placed:
                raise ValueError(f"run {spec.run} was started before")
            room = self._company.room(monotonic_ms(), spec.task)
            found = self._host_for(room)
            host = found or self._new_host(room)
            self._placed[spec.run] = _Placed(spec, host)
            self._give(host, hosting.TaskPlaced(spec.run, life.graceful_ms(spec)))
        if found is None:
            self._launch(host)

    def send(self, run: str, command: TaskCommand) -> None:
        with self._lock:
            placed = self._placed.get(run)
            if placed is None:
                return
            if placed.begun:
                placed.host.say(ForTask(run, command))
            else:
                placed.early.append(command)

    def stop(self, run: str, grace_ms: int) -> None:
        with self._lock:
            self.send(run, StopTask())
            placed = self._placed.get(run)
            if placed is not None:
                self._give(placed.host, hosting.TaskStopRequested(run, grace_ms))

    def close(self) -> None:
        with self._lock:
            for host in list(self._hosts.values()):
                self._give(host, life.KillRequested("the runner was closed"))
        self._launcher.close()
        deadline_ms = monotonic_ms() + CLOSE_LIMIT_MS
        while self._hosts and monotonic_ms() < deadline_ms:
            self._closed.wait(TICK_S)
        self._closed.set()

    # -- what the launcher and the lifelines tell --

    def _host_for(self, room: int) -> _Host | None:
        """Return a host for a task that is to share it with fewer than `room` others. Return None
        if a new one is to be started."""
        takers = [host for host in self._hosts.values() if host.machine.has_room]
        for host in takers:
            if host.room == room and host.machine.tasks < room:
                return host
        if self._may_grow():
            return None
        # Hosts of other suspects come first, so that tasks without suspicion are not crashed by
        # one.
        return min(takers, key=lambda host: (host.room, host.machine.tasks), default=None)

    def _may_grow(self) -> bool:
        """Return whether one more process is allowed."""
        if self._spare is None:
            return True
        open_hosts = [host.machine for host in self._hosts.values() if host.machine.is_open]
        tasks = sum(machine.tasks for machine in open_hosts) + 1
        return len(open_hosts) < -(-tasks // self._room) + self._spare

    def _new_host(self, room: int) -> _Host:
        self._started += 1
        machine = hosting.HostMachine(
            monotonic_ms(), self._limit_ms, self._start_limit_ms, self._room, self._idle_ms
        )
        host = _Host(f"host {self._started}", room, machine)
        self._hosts[host.id] = host
        return host

    def _launch(self, host: _Host) -> None:
        argument = wire.dumps(
            Invitation(
                host.id,
                host.name,
                self._server.host,
                self._server.port,
                host.token,
                host_of_tasks=True,
            )
        ).decode()
        launch(self._launcher, host.id, host.name, argument, lambda over: self._give(host, over))

    def token(self, run: str) -> str | None:
        with self._lock:
            found = self._hosts.get(run)
            return found.token if found is not None else None

    def arrived(self, hello: Hello, connection: Connection) -> bool:
        with self._lock:
            host = self._hosts.get(hello.run)
            if host is None:
                return False
            self._give(host, life.HelloReceived(is_here(hello)), (hello, connection))
            return host.connection is connection

    def reported(self, run: str, message: Any) -> None:
        with self._lock:
            host = self._hosts.get(run)
            if host is None:
                return
            match message:
                case FromTask(task_run, report):
                    self._give(host, hosting.TaskReported(task_run, report))
                case TaskEnded():
                    self._give(host, life.BodyReported(message))
                case _:
                    self._give(host, life.Heard())
        if isinstance(message, Logged):
            relog(host.name, message)

    def left(self, run: str) -> None:
        with self._lock:
            host = self._hosts.get(run)
            if host is not None:
                self._give(host, life.ConnectionClosed())

    # -- decisions and what follows from them --

    def _give(self, host: _Host, given: hosting.HostInput, caller: _Caller | None = None) -> None:
        with self._lock:
            before = host.machine.crashed
            outputs = host.machine.handle(monotonic_ms(), given)
            if host.machine.crashed and not before:
                in_it = [each.spec.task for each in self._placed.values() if each.host is host]
                self._company.crashed(monotonic_ms(), in_it)
                _log.warning("%s is gone, with %d tasks in it", host.name, len(in_it))
            for output in outputs:
                self._perform(host, output, caller)
            if host.machine.released:
                self._hosts.pop(host.id, None)
                host.hang_up()

    def _perform(self, host: _Host, output: hosting.HostOutput, caller: _Caller | None) -> None:
        match output:
            case hosting.ForwardTask(run, report):
                if isinstance(report, TaskReleased):
                    del self._placed[run]
                self._report(run, report)
            case hosting.BeginTask(run):
                self._begin(self._placed[run])
            case hosting.AbandonTask(run, reason):
                host.say(AbandonTask(run, reason))
            case hosting.Retired():
                host.say(EndHost())
            case life.Welcome():
                assert caller is not None
                host.connected(*caller)
                host.say(HostWelcome(self._limit_ms, logs=True, calls=True))
            case life.Refuse():
                pass  # `arrived` returns False
            case life.KillLaunched():
                kill_launched(self._launcher, host.id, host.name)
            case life.KillBody():
                kill_process(host.name, host.hello)
            case life.Disconnect():
                host.hang_up()

    def _begin(self, placed: _Placed) -> None:
        placed.begun = True
        placed.host.say(StartTask(placed.spec))
        for command in placed.early:
            placed.host.say(ForTask(placed.spec.run, command))
        placed.early.clear()

    def _supervise(self) -> None:
        while not self._closed.wait(TICK_S):
            beat = self._beats.due()
            with self._lock:
                hosts = list(self._hosts.values())
            for host in hosts:
                if beat and host.connection is not None:
                    host.say(Beat())
                if is_gone(host.hello, host.machine.watching_pid):
                    self._give(host, life.BodyDead())
                self._give(host, life.Tick())
