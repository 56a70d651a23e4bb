"""Calls travel as bytes on the embedded log, so they may come from another release."""

import threading
from pathlib import Path

from headgate.herder.calls import DescribeWorker, ErrorKind, Failure, Success
from headgate.ports import TransportError
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings


def changed(transport: EmbeddedTransport, what: str, to: bytes) -> None:
    with transport._database.write() as connection:
        connection.execute(f"update calls set {what} = ?", (to,))


def test_a_call_that_nobody_can_read_is_refused_and_keeps_no_other_waiting(tmp_path: Path) -> None:
    callee, caller = (open_transport(transport_settings(tmp_path), url=u) for u in ("w", "user"))
    found: list[object] = []

    def ask() -> None:
        found.append(caller.peers.call("w", DescribeWorker(), 0, 10_000))

    user = threading.Thread(target=ask)
    user.start()
    while not _waiting(callee):
        pass
    changed(callee, "payload", b'{"call":{"type":"Fly"},"origin":""}')
    assert list(callee.peers.incoming()) == []
    user.join(10)
    (refused,) = found
    assert isinstance(refused, Failure)
    assert refused.kind is ErrorKind.BAD_REQUEST
    assert refused.message.startswith("malformed call: _Asked.call: type 'Fly', expected one of")
    callee.close()
    caller.close()


def test_an_answer_that_nobody_can_read_may_have_been_one(tmp_path: Path) -> None:
    """The call was carried out, perhaps: it is as an answer that was lost."""
    callee, caller = (open_transport(transport_settings(tmp_path), url=u) for u in ("w", "user"))
    errors: list[str] = []

    def ask() -> None:
        try:
            caller.peers.call("w", DescribeWorker(), 0, 10_000)
        except TransportError as error:
            errors.append(str(error))

    user = threading.Thread(target=ask)
    user.start()
    while not (calls := callee.peers.incoming()):
        pass
    changed(callee, "answer", b"[1]")
    callee.peers.answer(calls[0].call_id, Success())  # it has one: nothing
    user.join(10)
    (error,) = errors
    assert error.startswith("w gave an answer that nobody can read: message: [1] fits none of")
    callee.close()
    caller.close()


def _waiting(transport: EmbeddedTransport) -> int:
    with transport._database.read() as connection:
        return len(connection.execute("select 1 from calls").fetchall())


def test_a_call_says_who_asks(tmp_path: Path) -> None:
    callee, caller = (open_transport(transport_settings(tmp_path), url=u) for u in ("w", "user"))
    peers = caller.peers
    user = threading.Thread(target=lambda: peers.call("w", DescribeWorker(), 1, 10_000, "by me"))
    user.start()
    while not (calls := callee.peers.incoming()):
        pass
    callee.peers.answer(calls[0].call_id, Success())
    user.join(10)
    assert [(one.call, one.hops, one.origin) for one in calls] == [(DescribeWorker(), 1, "by me")]
    callee.close()
    caller.close()
