"""Work that hangs costs a thread, and holds up nothing that comes after it."""

import threading
from functools import partial

import pytest

from headgate_runtime.worker.daemon_threads import DaemonThreads

PATIENCE_S = 30


def test_a_few_at_once_in_order() -> None:
    threads, go, began = DaemonThreads(2, "few"), threading.Semaphore(0), list[int]()
    done = threading.Semaphore(0)

    def work(number: int) -> None:
        began.append(number)
        done.release()
        go.acquire()

    for number in range(5):
        threads.submit(partial(work, number))
    for _ in range(2):
        assert done.acquire(timeout=PATIENCE_S)
    assert not done.acquire(timeout=0.2)
    for so_far in (3, 4, 5):
        go.release()
        assert done.acquire(timeout=PATIENCE_S)
        assert sorted(began) == list(range(so_far))
    go.release(2)


def test_what_hangs_does_not_use_up_the_threads() -> None:
    threads, hang, done = DaemonThreads(2, "few", overdue_s=0.2), threading.Event(), list[int]()
    last = threading.Event()
    for _ in range(4):
        threads.submit(lambda: void(hang.wait()))
    threads.submit(lambda: done.append(1))
    threads.submit(last.set)
    assert last.wait(PATIENCE_S)
    assert done == [1]
    hang.set()


def test_a_thread_that_comes_back_late_is_one_of_the_few_again() -> None:
    threads, hang = DaemonThreads(1, "one", overdue_s=0.2), threading.Event()
    threads.submit(lambda: void(hang.wait()))
    second, go, third = threading.Event(), threading.Event(), threading.Event()
    threads.submit(lambda: (second.set(), void(go.wait()))[0])
    assert second.wait(PATIENCE_S)
    threads.submit(third.set)
    hang.set()
    go.set()
    assert third.wait(PATIENCE_S)


def test_nothing_begins_after_the_end() -> None:
    threads, go, began = DaemonThreads(1, "one"), threading.Event(), list[int]()
    running = threading.Event()
    threads.submit(lambda: (running.set(), void(go.wait()))[0])
    assert running.wait(PATIENCE_S)
    threads.submit(lambda: began.append(1))
    threads.close()
    threads.submit(lambda: began.append(2))
    go.set()
    assert began == []


def test_what_there_is_no_thread_for_is_done_when_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, first, second = DaemonThreads(1, "one"), threading.Event(), threading.Event()

    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        threads.submit(first.set)
    threads.submit(second.set)
    assert first.wait(PATIENCE_S) and second.wait(PATIENCE_S)


def void(_: object) -> None:
    """Return None whatever it gets, for lambdas that wait."""
