"""A call of a plugin that hangs holds up its caller alone."""

import threading
import time
from collections.abc import Iterator

import pytest

from headgate_runtime.plugins import threads as plugin_threads
from headgate_runtime.plugins.threads import AT_ONCE, AT_ONCE_OF_ONE, HangError, PluginThreads

PATIENCE_S = 30


class Hang:
    """Calls that hang until the test ends."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.begun = threading.Semaphore(0)

    def __call__(self) -> None:
        self.begun.release()
        self.over.wait()

    def await_begun(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=PATIENCE_S)


@pytest.fixture
def hang() -> Iterator[Hang]:
    made = Hang()
    yield made
    made.over.set()


def test_another_plugin_waits_for_none_that_hangs(hang: Hang) -> None:
    """That holds even before the hanging calls are overdue."""
    threads, asked = PluginThreads("t", overdue_s=3_600), threading.Event()
    for _ in range(40):
        threads.submit("hangs", hang)
    hang.await_begun(AT_ONCE_OF_ONE)
    threads.submit("good", asked.set)
    assert asked.wait(PATIENCE_S)
    assert not hang.begun.acquire(blocking=False), "calls of one plugin compute a few at once"


def test_calls_of_the_same_plugin_go_on_when_those_that_hang_are_overdue(hang: Hang) -> None:
    threads, asked = PluginThreads("t", overdue_s=0.1), threading.Event()
    for _ in range(40):
        threads.submit("hangs", hang)
    threads.submit("hangs", asked.set)
    assert asked.wait(PATIENCE_S)


def test_only_a_few_of_all_compute_at_once(hang: Hang) -> None:
    threads = PluginThreads("t", overdue_s=3_600)
    for n in range(AT_ONCE + 1):
        threads.submit(f"p{n}", hang)
    hang.await_begun(AT_ONCE)
    assert not hang.begun.acquire(timeout=0.2)
    hang.over.set()
    hang.await_begun(1)


def test_the_plugin_with_the_fewest_at_work_is_next(hang: Hang) -> None:
    threads, order = PluginThreads("t", overdue_s=3_600), list[str]()
    other, first = Hang(), threading.Event()
    for _ in range(AT_ONCE_OF_ONE):
        threads.submit("a", hang)
        threads.submit("b", other)
    hang.await_begun(AT_ONCE_OF_ONE)
    other.await_begun(AT_ONCE_OF_ONE)
    threads.submit("a", lambda: order.append("a"))
    threads.submit("c", lambda: (order.append("c"), first.set())[0])
    other.over.set()
    assert first.wait(PATIENCE_S)
    assert order[0] == "c"


@pytest.mark.parametrize("limit", ["HANG_OF_ONE", "HANG_MAX"])
def test_what_hangs_cannot_use_up_all_threads(
    hang: Hang, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(plugin_threads, limit, 3)
    threads = PluginThreads("t", overdue_s=0.01)
    for _ in range(3):
        threads.submit("hangs", hang)
    hang.await_begun(3)
    with pytest.raises(HangError, match=r"3 calls of .* have not ended: they hang"):
        threads.submit("hangs", hang)
    hang.over.set()
    asked = threading.Event()

    def submitted() -> bool:
        try:
            threads.submit("hangs", asked.set)
        except HangError:
            return False
        return True

    while not submitted():
        pass
    assert asked.wait(PATIENCE_S)


def test_a_thousand_that_end_are_all_done() -> None:
    """Any number of calls may wait: only those that hang are refused."""
    threads, done = PluginThreads("t"), threading.Semaphore(0)
    for _ in range(1_000):
        threads.submit("quick", done.release)
    for _ in range(1_000):
        assert done.acquire(timeout=PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while threads._lanes:
        assert time.monotonic() < until, "lanes of plugins that are not asked are kept"
        time.sleep(0.001)


def test_nothing_begins_after_the_end(hang: Hang) -> None:
    threads, began = PluginThreads("t", overdue_s=3_600), list[int]()
    for _ in range(AT_ONCE_OF_ONE):
        threads.submit("p", hang)
    hang.await_begun(AT_ONCE_OF_ONE)
    threads.submit("p", lambda: began.append(1))
    threads.close()
    threads.submit("q", lambda: began.append(2))
    hang.over.set()
    assert began == []


def test_what_there_is_no_thread_for_is_done_when_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, first, second = PluginThreads("t"), threading.Event(), threading.Event()

    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        threads.submit("p", first.set)
    threads.submit("p", second.set)
    assert first.wait(PATIENCE_S) and second.wait(PATIENCE_S)


def test_calls_that_compute_do_not_become_ever_more() -> None:
    """The calls share the interpreter, so after a while none of many would be at its end."""
    threads, over = PluginThreads("t", overdue_s=0.1), threading.Event()
    begun = threading.Semaphore(0)

    def compute() -> None:
        begun.release()
        while not over.is_set():
            pass

    try:
        for _ in range(40):
            threads.submit("computes", compute)
        for _ in range(AT_ONCE_OF_ONE):
            assert begun.acquire(timeout=PATIENCE_S)
        assert not begun.acquire(timeout=2), "more than a few compute at once"
        other = threading.Event()
        threads.submit("other", other.set)
        assert other.wait(PATIENCE_S)
    finally:
        over.set()


def test_what_computes_for_too_long_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_threads, "COMPUTES_MAX_S", 0.5)
    threads, over = PluginThreads("t", overdue_s=0.1), threading.Event()
    asked = threading.Event()

    def compute() -> None:
        while not over.is_set():
            pass

    try:
        for _ in range(AT_ONCE_OF_ONE):
            threads.submit("computes", compute)
        threads.submit("computes", asked.set)
        assert asked.wait(PATIENCE_S)
    finally:
        over.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_that_ends_its_thread_counts_no_more() -> None:
    """The processor time of a thread that has ended must not be asked for."""
    calls, asked = PluginThreads("t"), threading.Event()

    def ends() -> None:
        raise SystemExit

    calls.submit("a", ends)
    until = time.monotonic() + PATIENCE_S
    while calls._begun():
        assert time.monotonic() < until
        time.sleep(0.01)
    calls.submit("a", asked.set)
    assert asked.wait(PATIENCE_S)
