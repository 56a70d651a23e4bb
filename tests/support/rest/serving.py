"""Something that is to be done again and again while a test waits for another's answer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def serving_meanwhile(serve: Callable[[], None]) -> Iterator[None]:
    """`serve` is called every millisecond, on a thread of its own."""
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
