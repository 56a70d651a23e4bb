"""A call is made on a thread beside its caller, who goes on meanwhile."""

import contextlib
import gc
import threading
import weakref

import pytest
from support.task.scripted_source import let_a_bare_error_out

from headgate.ports import TransportError
from headgate_kafka.clients.side_call import SideCall

LIMIT_S = 10.0


def test_its_end_is_awaited_when_it_is_asked_for() -> None:
    go, done = threading.Event(), list[str]()

    def call() -> None:
        assert go.wait(LIMIT_S)
        done.append("done")

    beside = SideCall()
    end = beside.begin(call)
    assert done == []
    go.set()
    end()
    assert done == ["done"]
    beside.close()


def test_what_it_raises_is_raised_at_its_end_and_the_next_is_made() -> None:
    def breaks() -> None:
        raise SystemExit("it broke")

    beside, threads = SideCall(), list[int]()
    end = beside.begin(breaks)
    with pytest.raises(SystemExit, match="it broke"):
        end()
    for _ in range(2):
        beside.begin(lambda: threads.append(threading.get_ident()))()
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    beside.close()


def test_it_has_come_to_where_it_waits_although_others_compute() -> None:
    """The caller goes on computing, and would keep the interpreter for milliseconds. (A busy
    machine may take it from the call now and then.)"""
    beside, go, waits = SideCall(), threading.Event(), list[int]()
    waiting = 0

    def call() -> None:
        waits.append(1)
        assert go.wait(LIMIT_S)

    for n in range(50):
        go.clear()
        end = beside.begin(call)
        waiting += len(waits) > n
        go.set()
        end()
    assert waiting > 40
    beside.close()


def test_what_is_no_exception_is_told_at_its_end_too() -> None:
    """Otherwise the caller would wait for ever."""
    beside = SideCall()
    end = beside.begin(let_a_bare_error_out)
    with pytest.raises(TransportError, match=r"transactional\.id"):
        end()
    beside.close()


def test_what_failed_is_not_kept() -> None:
    """The traceback of an error holds all that the call has seen, such as a client with its
    threads."""

    class Client:
        pass

    def breaks() -> None:
        client = Client()
        seen.append(weakref.ref(client))
        raise ValueError("it broke")

    seen: list[weakref.ref[Client]] = []
    beside = SideCall()
    gc.disable()
    try:
        end = beside.begin(breaks)
        with contextlib.suppress(ValueError):
            end()
        assert seen[0]() is None
    finally:
        gc.enable()
    beside.close()


def test_its_thread_ends_with_it_and_keeps_nobody() -> None:
    def named() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "beside"]

    before = named()
    beside = SideCall()
    beside.begin(lambda: None)()
    [thread] = [thread for thread in named() if thread not in before]
    assert thread.daemon
    beside.close()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    beside.begin(lambda: None)()
    beside.close()
