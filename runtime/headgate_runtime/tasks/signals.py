"""Signals in the processes of a worker's tasks."""

import signal


def leave_signals_to_the_worker() -> None:
    """Ignore SIGINT and SIGTERM. A terminal's Ctrl-C and a service manager's SIGTERM go to all
    processes, but the worker decides how and when its tasks stop. A body that outlives the worker
    notices it on the lifeline, and ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
