"""Both ends of a lifeline over a real connection: which bodies are accepted, the effect of silence,
and kills.

The bodies are threads of this process that hold their end by hand.
"""

import contextlib
import errno
import json
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from headgate import wire
from headgate.ids import TargetState, TaskId
from headgate.ports import LaunchRefusal
from headgate.task.messages import (
    LongCall,
    PauseTask,
    StopTask,
    TaskEnded,
    TaskKind,
    TaskOutcome,
    TaskReleased,
    TaskReport,
    TaskRunning,
    TaskSpec,
)
from headgate_runtime.tasks import launching, protocol
from headgate_runtime.tasks import runners as runners_module
from headgate_runtime.tasks import server as server_module
from headgate_runtime.tasks.lifeline import LifelineGone
from headgate_runtime.tasks.log_lines import KEPT_MAX, TEXT_MAX
from headgate_runtime.tasks.packed_runner import PackedRunner
from headgate_runtime.tasks.protocol import (
    Hello,
    Invitation,
    Welcome,
    encode,
    is_alive,
    process_started,
)
from headgate_runtime.tasks.runners import LaunchedRunner
from headgate_runtime.tasks.server import LifelineServer
from headgate_runtime.tasks.socket_lifeline import EXIT_STATUS, HostLifeline, SocketLifeline

LIMIT_MS = 600
SPEC = TaskSpec(
    "w/1", TaskId("c", 0), TaskKind.SOURCE, {}, {}, TargetState.STARTED, 3, True, "g-c-0",
    "g", "m", 1, "w", {}, {"kind": "embedded"},
)  # fmt: skip


class ByHand:
    """A launcher whose bodies the test plays."""

    def __init__(self) -> None:
        self.invitations: queue.Queue[Invitation] = queue.Queue()
        self.ended: dict[str, Callable[[str | None], None]] = {}
        self.killed: list[str] = []

    def launch(self, run: str, argument: str, ended: Callable[[str | None], None]) -> None:
        self.ended[run] = ended
        self.invitations.put(wire.loads(Invitation, argument.encode()))

    def kill(self, run: str) -> None:
        self.killed.append(run)

    def close(self) -> None: ...


class Bench:
    """A runner whose launcher does nothing by itself.

    Args:
        kind: makes the runner.
    """

    def __init__(
        self,
        alive: Callable[[], bool],
        start_limit_ms: int,
        kind: Callable[..., LaunchedRunner | PackedRunner] = LaunchedRunner,
    ) -> None:
        self.launcher = ByHand()
        self.reports: queue.Queue[TaskReport] = queue.Queue()
        self.server = LifelineServer(LIMIT_MS)
        self.runner = kind(
            self.launcher,
            lambda run, report: self.reports.put(report),
            self.server,
            silence_limit_ms=LIMIT_MS,
            start_limit_ms=start_limit_ms,
            alive=alive,
        )

    def invite(self) -> Invitation:
        self.runner.start(SPEC)
        return self.launcher.invitations.get(timeout=10)

    def next(self) -> TaskReport:
        return self.reports.get(timeout=10)

    def close(self) -> None:
        self.runner.close()
        self.server.close()


@pytest.fixture(autouse=True)
def closing_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the closing: the stand-ins of these tests do not end when they are killed."""
    monkeypatch.setattr(runners_module, "CLOSE_LIMIT_MS", 50)


@pytest.fixture
def served() -> list[bool]:
    return [True]


@pytest.fixture
def killed_pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pids that were to be killed; the bodies here live in this very process."""
    pids: list[int] = []

    def kill(pid: int, number: int) -> None:
        pids.append(pid)

    monkeypatch.setattr(launching.os, "kill", kill)
    return pids


@pytest.fixture
def bench(served: list[bool], killed_pids: list[int]) -> Iterator[Bench]:
    made = Bench(lambda: served[0], 20_000)
    yield made
    made.close()


def body(invitation: Invitation) -> SocketLifeline:
    """A body's end whose watchdog lets this process live."""
    return SocketLifeline(invitation, leave=lambda status: None)


def dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "is_alive", lambda hello: False)


def test_commands_down_and_reports_up(bench: Bench) -> None:
    invitation = bench.invite()
    bench.runner.send("w/1", PauseTask())  # before the body is there
    lifeline = body(invitation)
    assert lifeline.spec == SPEC
    assert lifeline.take(5) == [PauseTask()]
    lifeline.report(TaskRunning())
    assert bench.next() == TaskRunning()
    lifeline.report(LongCall("poll", 30_000))
    assert bench.next() == LongCall("poll", 30_000)
    bench.runner.stop("w/1", 60_000)
    assert lifeline.take(5) == [StopTask()]
    assert lifeline.stopping
    lifeline.report(TaskEnded(TaskOutcome.STOPPED))
    assert bench.next() == TaskEnded(TaskOutcome.STOPPED)
    lifeline.close()
    time.sleep(0.1)
    assert bench.reports.empty(), "what was launched is not over yet"
    bench.launcher.ended["w/1"](None)
    assert bench.next() == TaskReleased()


def test_a_host_tells_of_a_long_call_of_one_of_its_tasks(killed_pids: list[int]) -> None:
    bench = Bench(lambda: True, 20_000, partial(PackedRunner, room=3))
    line = HostLifeline(bench.invite(), leave=lambda status: None)
    assert line.take(5) == [protocol.StartTask(SPEC)]
    line.report("w/1", LongCall("poll", 30_000))
    assert bench.next() == LongCall("poll", 30_000)
    line.close()
    bench.close()


def log_over(lifeline: SocketLifeline, level: int, text: str) -> None:
    assert lifeline.outbox is not None
    lifeline.outbox.handle(logging.LogRecord("acme", level, "", 1, text, None, None))


def test_what_is_logged_is_in_the_workers_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acme")
    lifeline = body(bench.invite())
    log_over(lifeline, logging.WARNING, "c-0: no file")
    deadline = time.monotonic() + 10
    while not caplog.records:  # with the next beat
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for n in range(100):
        log_over(lifeline, logging.INFO, f"{n}\n\udcff")
    lifeline.report(TaskEnded(TaskOutcome.STOPPED))
    assert bench.next() == TaskEnded(TaskOutcome.STOPPED)
    assert caplog.record_tuples == [
        ("acme", logging.WARNING, "c-0: no file"),
        *[("acme", logging.INFO, f"c-0: {n}\n\\udcff") for n in range(100)],
    ]
    lifeline.close()


def greeted_by_hand(greeting: bytes) -> tuple[SocketLifeline, socket.socket]:
    """A body, and its worker's end: it has been welcomed with `greeting`, and nothing is read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        welcoming = threading.Thread(
            target=lambda: accepted.append(listener.accept()[0]) or accepted[0].sendall(greeting)
        )
        accepted: list[socket.socket] = []
        welcoming.start()
        lifeline = body(Invitation("w/1", "c-0", host, port, ""))
        welcoming.join()
    return lifeline, accepted[0]


def test_a_worker_that_does_not_read_holds_nobody_up_who_logs() -> None:
    lifeline, worker = greeted_by_hand(encode(Welcome(SPEC, 10_000, logs=True)))
    with worker:
        began = time.monotonic()
        for _ in range(20):  # more than the system's buffers hold
            for _ in range(KEPT_MAX):
                log_over(lifeline, logging.INFO, "x" * TEXT_MAX)
            lifeline.report(TaskEnded(TaskOutcome.STOPPED))
            assert lifeline.lost is None
            assert time.monotonic() - began < 8
        lifeline.close()


def test_a_worker_of_an_older_version_is_sent_no_log() -> None:
    older = json.loads(encode(Welcome(SPEC, 30_000)))
    del older["logs"]
    lifeline, worker = greeted_by_hand(json.dumps(older).encode() + b"\n")
    with worker:
        assert lifeline.outbox is None
        lifeline.report(TaskEnded(TaskOutcome.STOPPED))
        lifeline.close()


@pytest.mark.parametrize("takes", [True, False])
def test_only_a_worker_that_takes_long_calls_is_told_of_them(takes: bool) -> None:
    """A worker of an older version would disconnect, for example when files are replaced while it
    runs."""
    lifeline, worker = greeted_by_hand(encode(Welcome(SPEC, 30_000, calls=takes)))
    with worker:
        lifeline.report(LongCall("poll", 30_000))
        lifeline.report(TaskEnded(TaskOutcome.STOPPED))
        lifeline.close()
        said = worker.makefile("rb").read()
    assert (b'"LongCall"' in said) is takes
    assert b'"TaskEnded"' in said


def test_who_is_not_invited_is_hung_up_on(bench: Bench) -> None:
    invitation = bench.invite()
    for wrong in (replace(invitation, token="guessed"), replace(invitation, run="w/2")):
        with pytest.raises(LifelineGone, match="does not want this body"):
            body(wrong)
    body(invitation).close()


DEEP = b"[" * 10_000 + b"\n"
STRANGERS = {
    "no JSON": b"GET / HTTP/1.1\r\n\r\n",
    "another message": b'{"type": "Beat"}\n',
    "too deep": DEEP,
    "longer than any hello": b" " * (server_module.HELLO_BYTES_MAX + 1),
    "a field too deep": b'{"type": "Hello", "run": ' + DEEP,
    "a token that is not ASCII": encode(Hello("w/1", "\u00e9", 1, "", "h", "")),
    "half a line": encode(Hello("w/1", "x", 1, "", "h", ""))[:-9],
}


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_is_hung_up_on_whatever_it_says(bench: Bench, said: bytes) -> None:
    """10,000 brackets left the socket open, and a line without end was kept in memory."""
    invitation = bench.invite()
    with socket.create_connection((invitation.host, invitation.port), 10) as stranger:
        stranger.sendall(said)
        if not said.endswith(b"\n"):
            stranger.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # not all was read
            assert stranger.recv(1) == b""
    body(invitation).close()


def test_a_stranger_that_never_ends_its_line_costs_no_memory(bench: Bench) -> None:
    invitation = bench.invite()
    sent = 0
    with (
        socket.create_connection((invitation.host, invitation.port), 10) as stranger,
        pytest.raises(OSError, match=r"reset|Broken pipe"),
    ):
        while sent < 200_000_000:
            sent += stranger.send(b"x" * 100_000)
    assert sent < 20_000_000  # what the system's buffers hold


def test_a_stranger_has_so_long_in_whole_not_for_each_byte(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HELLO_TIMEOUT_S", 0.3)
    invitation = bench.invite()
    began = time.monotonic()
    with socket.create_connection((invitation.host, invitation.port), 0.1) as stranger:
        while time.monotonic() - began < 10:
            try:
                stranger.sendall(b" ")
                if stranger.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", DEEP])
def test_a_body_that_meets_no_worker_ends(answer: bytes) -> None:
    """The port may be another's by now."""
    with pytest.raises(LifelineGone, match="is no worker of ours"):
        greeted_by_hand(answer)


def test_a_worker_that_says_what_cannot_be_read_is_lost() -> None:
    lifeline, worker = greeted_by_hand(encode(Welcome(SPEC, 30_000)))
    with worker:
        worker.sendall(DEEP)
        assert lifeline.wait(10)
        assert "the worker said what cannot be read" in str(lifeline.lost)
        lifeline.close()


def test_a_second_body_of_one_run_is_refused(bench: Bench) -> None:
    """Spark's own retry: it would shut out the first."""
    invitation = bench.invite()
    first = body(invitation)
    with pytest.raises(LifelineGone, match="does not want this body"):
        body(invitation)
    first.close()


def test_a_body_that_comes_after_the_stop_is_refused(bench: Bench) -> None:
    invitation = bench.invite()
    bench.runner.stop("w/1", 0)
    ended = bench.next()
    assert isinstance(ended, TaskEnded)
    assert ended.outcome is TaskOutcome.LOST
    with pytest.raises(LifelineGone):
        body(invitation)
    bench.launcher.ended["w/1"](None)
    assert bench.next() == TaskReleased()
    with pytest.raises(LifelineGone):
        body(invitation)


def test_a_connection_that_closes_without_a_last_word(
    bench: Bench, killed_pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that lives can close: only its death releases the run."""
    lifeline = body(bench.invite())
    lifeline.close()
    ended = bench.next()
    assert isinstance(ended, TaskEnded)
    assert "closed without a last word" in ended.reason
    bench.launcher.ended["w/1"]("job failed")
    time.sleep(0.2)
    assert bench.reports.empty()
    assert killed_pids == [os.getpid()]
    dead(monkeypatch)
    assert bench.next() == TaskReleased()


def test_a_worker_that_is_not_served_is_silent_to_its_bodies(
    bench: Bench, served: list[bool]
) -> None:
    left: list[int] = []
    lifeline = SocketLifeline(bench.invite(), leave=left.append)
    time.sleep(2 * LIMIT_MS / 1000)
    assert lifeline.lost is None
    served[0] = False
    deadline = time.monotonic() + 10
    while not left:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # The body did not end by itself within as long again, so its process was to be ended.
    assert left == [EXIT_STATUS]
    assert "nothing heard" in (lifeline.lost or "")
    with pytest.raises(LifelineGone):
        lifeline.check()


def test_a_body_that_does_not_come_up_is_given_up(served: list[bool]) -> None:
    made = Bench(lambda: served[0], 200)
    try:
        made.invite()
        ended: Any = made.next()
        assert "did not come up in time" in ended.reason
        deadline = time.monotonic() + 10
        while made.launcher.killed != ["w/1"]:  # asked on a thread of its own
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        made.close()


def test_a_launch_that_fails_ends_and_releases(bench: Bench) -> None:
    bench.invite()
    bench.launcher.ended["w/1"]("no slot on this cluster")
    assert bench.next() == TaskEnded(TaskOutcome.LOST, "no slot on this cluster")
    assert bench.next() == TaskReleased()


@pytest.mark.parametrize(
    "kind", [LaunchedRunner, partial(PackedRunner, room=3)], ids=["one each", "packed"]
)
def test_a_launch_that_would_fail_again_fails_its_task(
    kind: Callable[..., LaunchedRunner | PackedRunner],
) -> None:
    """A lost task is started again, which here would go on for ever."""
    bench = Bench(lambda: True, 20_000, kind)
    invitation = bench.invite()
    bench.launcher.ended[invitation.run](LaunchRefusal("version 1 here, 2 there"))
    assert bench.next() == TaskEnded(TaskOutcome.FAILED, "version 1 here, 2 there")
    assert bench.next() == TaskReleased()
    bench.close()


def test_a_pid_that_came_again_is_another_process() -> None:
    started = process_started(os.getpid())
    assert started is not None
    hello = Hello("w/1", "", os.getpid(), started, "", "")
    assert is_alive(hello)
    assert not is_alive(replace(hello, started="1"))
    assert not protocol.is_here(replace(hello, host="elsewhere"))


def test_a_caller_that_cannot_be_accepted_does_not_end_the_listening(
    monkeypatch: pytest.MonkeyPatch, killed_pids: list[int]
) -> None:
    """Otherwise one moment without free descriptors would keep all later tasks from starting."""

    class Flaky:
        def __init__(self, listener: socket.socket) -> None:
            self._listener = listener
            self._failures = 2

        def accept(self) -> Any:
            if self._failures:
                self._failures -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return self._listener.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._listener, name)

    create = socket.create_server
    monkeypatch.setattr(
        server_module.socket, "create_server", lambda *a, **k: Flaky(create(*a, **k))
    )
    monkeypatch.setattr(server_module, "ACCEPT_AGAIN_S", 0.01)
    made = Bench(lambda: True, 20_000)
    try:
        lifeline = body(made.invite())
        assert lifeline.spec == SPEC
        lifeline.close()
    finally:
        made.close()


class ClosesAtOnce:
    """Lets a guest in whose connection is closed before it is listened to."""

    def __init__(self) -> None:
        self.gone = threading.Event()

    def token(self, run: str) -> str:
        return "secret"

    def arrived(self, hello: Hello, connection: server_module.Connection) -> bool:
        connection.close()
        return True

    def reported(self, run: str, message: Any) -> None: ...

    def left(self, run: str) -> None:
        self.gone.set()


def test_a_connection_that_is_closed_while_it_is_let_in_is_left_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    server, guests = LifelineServer(LIMIT_MS), ClosesAtOnce()
    server.add(guests)
    try:
        with socket.create_connection((server.host, server.port)) as caller:
            caller.sendall(encode(Hello("w/1", "secret", os.getpid(), "", "", "")))
            assert guests.gone.wait(10)
            for each in [each for each in threading.enumerate() if each.name == "lifeline"]:
                each.join(10)
        assert not raised
    finally:
        server.close()


def test_a_process_that_may_not_be_killed_does_not_end_the_beats(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors may run as another user. Without beats all tasks of the worker would end."""

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(launching.os, "kill", refused)
    lifeline = body(bench.invite())
    bench.runner.stop("w/1", 50)
    assert isinstance(bench.next(), TaskEnded)
    bench.runner.start(replace(SPEC, run="w/2"))
    other = body(bench.launcher.invitations.get(timeout=10))
    time.sleep(2 * LIMIT_MS / 1000)
    assert other.lost is None
    lifeline.close()
    other.close()
