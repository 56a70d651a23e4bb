"""A stand-in for a Spark that starts when a test says so."""

import time
from collections.abc import Callable

LISTENS_WHEN_TOLD = """
import pathlib, socket, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
while True:
    listener.accept()
"""
"""Its arguments are the file whose creation starts it, and its port."""


def until(holds: Callable[[], bool]) -> None:
    """Wait up to 20 s until `holds()` is true."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass within 20 s"
        time.sleep(0.02)
