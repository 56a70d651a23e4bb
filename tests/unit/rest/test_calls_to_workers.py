"""Calls from worker to worker on real sockets: unreachable workers, connections, signatures."""

import socket
import threading

import pytest
from support.rest.asking import INFO, ask, called, ok
from support.rest.world import NOBODY, Keys, service, serving

from headgate.herder.messages import (
    Call,
    DeleteConnector,
    DescribeConnector,
    ErrorKind,
    Failure,
    FenceConnector,
    PutTaskConfigs,
    Result,
    Success,
)
from headgate.ports import IncomingCall, TransportError
from headgate.topics.config_events import SessionKeyChanged
from headgate_rest import RestService

# -- calls to other workers --


def test_a_worker_that_cannot_be_reached_was_asked_nothing(new: RestService) -> None:
    for url in (NOBODY, "NOTUSED", "", "http://name.invalid:1/", "http://w:x1/", "http://w\x00:1/"):
        result = called(new, DeleteConnector("a"), url=url)
        assert isinstance(result, Failure), url
        assert result.kind is ErrorKind.UNREACHABLE
        assert "could not be reached" in result.message


def test_a_connection_that_breaks_before_the_answer_leaves_it_open(new: RestService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            taken, _ = listening.accept()
            taken.recv(1_000)
            taken.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        with pytest.raises(TransportError, match="it may still have acted"):
            called(new, DeleteConnector("a"), url=url)
        thread.join()


def test_a_worker_that_came_back_on_its_port_is_asked_anew(new: RestService) -> None:
    """The connection that was kept to the old one is not used."""
    with serving(ok) as first:
        port = first.worker_id.split(":")[1]
        assert called(new, DescribeConnector("a"), url=first.url) == Success(INFO)
    with serving(ok, {"listeners": f"http://127.0.0.1:{port}"}) as second:
        assert called(new, DescribeConnector("a"), url=second.url) == Success(INFO)


def test_workers_are_not_called_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", NOBODY)
    with serving(ok) as made:
        assert called(made, DescribeConnector("a")) == Success(INFO)


def test_many_threads_ask_at_once(new: RestService) -> None:
    def echo(call: Call, incoming: IncomingCall) -> Result:
        assert isinstance(call, DescribeConnector)
        return Success({"name": call.name})

    wrong: list[Result] = []

    def ask_many(number: int) -> None:
        for turn in range(20):
            name = f"{number}-{turn}"
            result = called(new, DescribeConnector(name), url=made.url)
            if result != Success({"name": name}):
                wrong.append(result)

    with serving(echo) as made:
        threads = [threading.Thread(target=ask_many, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


# -- signatures --

KEY = SessionKeyChanged(0, b"k" * 32, "HmacSHA256", 1)


def test_internal_calls_are_signed_and_checked_in_a_group_that_signs() -> None:
    keys = Keys(KEY, sessioned=True)
    with serving(ok, keys=keys) as made:
        for call in (FenceConnector("a"), PutTaskConfigs("a", ({"x": "y"},), "d")):
            assert called(made, call) == Success()
        assert ask(made, "PUT /connectors/a/fence")[0] == 400
        assert ask(made, "POST /connectors/a/tasks", [])[0] == 400
        assert ask(made, "GET /connectors/a")[0] == 200  # what users ask is not signed
        keys.sessioned = False
        assert ask(made, "PUT /connectors/a/fence")[0] == 204


def test_a_worker_with_another_key_is_to_ask_again() -> None:
    other = Keys(SessionKeyChanged(0, b"o" * 32, "HmacSHA256", 1), sessioned=True)
    caller = service(keys=other)
    try:
        with serving(ok, keys=Keys(KEY, sessioned=True)) as made:
            result = called(caller, FenceConnector("a"), url=made.url)
            assert result == Failure(
                ErrorKind.NOT_READY, "Internal request contained invalid signature."
            )
            other.key = None
            result = called(caller, FenceConnector("a"), url=made.url)
            assert isinstance(result, Failure)
            assert result.kind is ErrorKind.NOT_READY
    finally:
        caller.close()


def test_a_key_that_is_not_the_current_one_is_taken_as_long_as_it_is_known() -> None:
    caller = service(keys=Keys(SessionKeyChanged(0, b"o" * 32, "HmacSHA256", 1), sessioned=True))
    keys = Keys(KEY, also=(b"x" * 32, b"o" * 32), sessioned=True)
    try:
        with serving(ok, keys=keys) as made:
            assert called(caller, FenceConnector("a"), url=made.url) == Success()
            keys.also = (b"x" * 32,)
            result = called(caller, FenceConnector("a"), url=made.url)
            assert isinstance(result, Failure)
            assert result.kind is ErrorKind.NOT_READY
    finally:
        caller.close()
