"""Messages on the lifeline's connection, each one line of JSON (`headgate.wire`).

body -> worker   Hello, then Beat, reports and Logged
worker -> body   Welcome, then Beat and commands; the worker hangs up on an uninvited body

A host runs several tasks and has one connection for all of them:

host -> worker   Hello, then Beat, FromTask, Logged, and TaskEnded as the last word of the host
worker -> host   HostWelcome, then Beat, StartTask, ForTask, AbandonTask and EndHost
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from headgate import wire
from headgate.task.messages import BodyReport, TaskCommand, TaskSpec


@dataclass(frozen=True, slots=True)
class Hello:
    run: str
    token: str
    pid: int
    started: str
    """When the process of that pid started, in the system's own format. A pid may be used again."""
    host: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Welcome:
    spec: TaskSpec
    limit_ms: int
    """Length of a silence, in ms, after which the body stops by itself."""
    logs: bool = False
    """Whether the worker takes `Logged`. A worker of an older version would hang up."""
    calls: bool = False
    """Whether the worker takes `LongCall`. A worker of an older version would hang up."""


@dataclass(frozen=True, slots=True)
class HostWelcome:
    limit_ms: int
    """Length of a silence, in ms, after which the tasks of the host stop by themselves."""
    logs: bool = False
    calls: bool = False


@dataclass(frozen=True, slots=True)
class StartTask:
    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class ForTask:
    run: str
    command: TaskCommand


@dataclass(frozen=True, slots=True)
class AbandonTask:
    """The worker has given up the task, which must commit nothing more."""

    run: str
    reason: str


@dataclass(frozen=True, slots=True)
class EndHost:
    """The host is empty, and no task will be added."""


@dataclass(frozen=True, slots=True)
class FromTask:
    """A task's report. `TaskReleased` says that the thread of the task has returned."""

    run: str
    report: BodyReport


@dataclass(frozen=True, slots=True)
class Beat:
    pass


@dataclass(frozen=True, slots=True)
class Logged:
    """A log record of the body's process, for the worker's log."""

    level: int
    """Level, as a number of `logging`."""
    logger: str
    text: str
    """Text, with its traceback."""
    task: str = ""
    """Task on which the logging thread worked. Empty: it is not known."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """The argument of a launched body. It says how to reach its lifeline."""

    run: str
    task: str
    host: str
    port: int
    token: str
    host_of_tasks: bool = False
    """Whether the body is to be a host."""


HostCommand: TypeAlias = StartTask | ForTask | AbandonTask | EndHost
FromBody: TypeAlias = Hello | Beat | Logged | FromTask | BodyReport
FromWorker: TypeAlias = Welcome | Beat | TaskCommand
ToHost: TypeAlias = HostWelcome | Beat | HostCommand


def encode(message: object) -> bytes:
    return wire.dumps(message) + b"\n"


def boot_id() -> str:
    """Return the id of this boot of the machine, or "" if the system gives none."""
    return _read("/proc/sys/kernel/random/boot_id")


def process_started(pid: int) -> str | None:
    """Return a mark that tells a process from a later one with the same pid. Return None if the
    process is gone, or dead and not yet collected."""
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    fields = text.rpartition(")")[2].split()
    if not fields or fields[0] in ("Z", "X"):
        return None
    return fields[19]  # starttime, field 22


def this_process(run: str, token: str) -> Hello:
    pid = os.getpid()
    return Hello(run, token, pid, process_started(pid) or "", socket.gethostname(), boot_id())


def is_here(hello: Hello) -> bool:
    """Return whether the body's process can be watched and killed from this one."""
    here = (socket.gethostname(), boot_id())
    return (hello.host, hello.boot_id) == here and bool(hello.started)


def is_alive(hello: Hello) -> bool:
    return process_started(hello.pid) == hello.started


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
