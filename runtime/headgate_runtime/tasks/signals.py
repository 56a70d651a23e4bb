"""What a process of a worker's tasks makes of signals."""

import signal


def leave_signals_to_the_worker() -> None:
    """A terminal's Ctrl-C and a service manager's SIGTERM go to all processes; the worker decides
    how and when its tasks stop. Who outlives it misses it on the lifeline, and ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
