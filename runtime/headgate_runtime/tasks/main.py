"""Entry points of a launched body or host: `run` for an executor, `main` for a process of its own.

The process gets its argument as the first line of its standard input, where no other user of the
machine sees it. It keeps reading: when the worker dies, the input ends.
"""

import logging
import os
import sys
import threading

from headgate import wire
from headgate.task.messages import TaskEnded, TaskOutcome
from headgate_runtime.tasks.body import run_body
from headgate_runtime.tasks.lifeline import LifelineGone
from headgate_runtime.tasks.log_lines import LineFormatter, logging_to
from headgate_runtime.tasks.protocol import Invitation
from headgate_runtime.tasks.signals import leave_signals_to_the_worker
from headgate_runtime.tasks.socket_lifeline import HostLifeline, SocketLifeline
from headgate_runtime.tasks.task_host import TaskHost
from headgate_runtime.worker import collector

STDIN = 0


def run(argument: str) -> str:
    """Run the body or the host that `argument` (an `Invitation` as JSON) invites. Return how it
    ended, as a line.

    Never raises: Spark would start it again by itself.
    """
    collector.settle()
    try:
        lifeline = _lifeline(argument)
    except (LifelineGone, wire.WireError) as error:
        return f"not run: {error}"
    with logging_to(lifeline.outbox):
        return _line(_serve(lifeline))


def main() -> int:
    prepare()
    return run_invited()


def prepare() -> None:
    """Do what can be done before the task is known, in a process of its own."""
    leave_signals_to_the_worker()
    lines = logging.StreamHandler()
    lines.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[lines])
    collector.settle()


def run_invited() -> int:
    argument = _first_line().decode()
    try:
        lifeline = _lifeline(argument)
    except (LifelineGone, wire.WireError) as error:
        print(f"not run: {error}", file=sys.stderr)
        return 1
    threading.Thread(target=_watch_parent, args=(lifeline,), daemon=True).start()
    ended = _serve(lifeline)
    if ended.outcome is not TaskOutcome.FAILED:  # the worker reports a failure, with its trace
        print(_line(ended), file=sys.stderr)
    return 0


def _lifeline(argument: str) -> SocketLifeline | HostLifeline:
    invitation: Invitation = wire.loads(Invitation, argument.encode())
    return (HostLifeline if invitation.host_of_tasks else SocketLifeline)(invitation)


def _serve(lifeline: SocketLifeline | HostLifeline) -> TaskEnded:
    if isinstance(lifeline, HostLifeline):
        return TaskHost(lifeline).run()
    return run_body(lifeline)


def _first_line() -> bytes:
    # Not through `sys.stdin`: a thread that waits in its buffer would make the interpreter abort
    # when the process ends.
    read = b""
    while not read.endswith(b"\n") and (more := os.read(STDIN, 65_536)):
        read += more
    return read


def _watch_parent(lifeline: SocketLifeline | HostLifeline) -> None:
    while os.read(STDIN, 1_024):
        pass
    if not lifeline.closed:
        lifeline.lose("the worker's process is gone")


def _line(ended: TaskEnded) -> str:
    return f"{ended.outcome}: {ended.reason}" if ended.reason else str(ended.outcome)


if __name__ == "__main__":
    sys.exit(main())
