"""A function that is called again and again while a test waits for an answer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def serving_meanwhile(serve: Callable[[], None]) -> Iterator[None]:
    """Call `serve` every millisecond, on a thread of its own, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.001):
            serve()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
