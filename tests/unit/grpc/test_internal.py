"""Calls between workers by gRPC: the authentication of callers, and calls that are never repeated
automatically."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.grpc.peers_world import KEY, GrpcWorker, GrpcWorld

from headgate import wire
from headgate.herder.messages import (
    Call,
    DeleteConnector,
    ErrorKind,
    Failure,
    PutConnectorConfig,
    Result,
    Success,
)
from headgate.ports import TransportError
from headgate.topics.config_events import SessionKeyChanged
from headgate_grpc.internal import signing
from headgate_grpc.internal.service import METHOD
from headgate_grpc.internal.signing import (
    SKEW_MS,
    RestartedError,
    UnsignedError,
    Verifier,
    metadata,
)
from headgate_grpc.internal.v1.worker_service_pb2 import AskRequest, AskResponse

OTHER_KEY = SessionKeyChanged(0, b"o" * 32, "HmacSHA256", 0)
CALL = DeleteConnector("a")
CALL_JSON = wire.dumps(CALL)
BODY = AskRequest(call_json=CALL_JSON, hops=1).SerializeToString()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[GrpcWorld]:
    made = GrpcWorld(tmp_path)
    yield made
    made.close()


class Served:
    """A callee that answers each call with success, and keeps them."""

    def __init__(self, worker: GrpcWorker) -> None:
        self.calls: list[Call] = []
        self._worker = worker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Served":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._over.wait(0.002):
            for call in self._worker.peers.incoming():
                self.calls.append(call.call)
                self._worker.peers.answer(call.call_id, Success("done", 7, 5))


def sent(
    worker: GrpcWorker, body: bytes, signed: Any, method: str = METHOD
) -> Result | grpc.StatusCode:
    """Return the outcome of a call that is made by hand."""
    with grpc.insecure_channel(worker.address) as channel:
        try:
            ask: Any = channel.unary_unary(method)
            answer = ask(body, timeout=10, metadata=signed)
        except grpc.RpcError as error:
            found: Any = error
            code: grpc.StatusCode = found.code()
            return code
    result: Result = wire.loads(Success | Failure, AskResponse.FromString(answer).result_json)
    return result


def test_config_offset_and_etag_come_with_the_answer(world: GrpcWorld) -> None:
    caller, callee = world.connect("one"), world.connect("two")
    call = PutConnectorConfig("a", {"k": None, "z": "1"}, etag=17)
    with Served(callee) as served:
        result = caller.peers.call("two", call, 2, 5_000)
    assert isinstance(result, Success)
    assert (result.value, result.config_offset, result.etag) == ("done", 7, 5)
    assert served.calls == [call], "etags and nulls as they were"


def signed_now(callee: GrpcWorker, ahead_ms: int) -> Any:
    return metadata(KEY.key, METHOD, callee.address, BODY, now_ms() + ahead_ms, callee.boot)


def test_who_is_not_of_the_group_is_not_believed(world: GrpcWorld) -> None:
    callee = world.connect("two")
    good = metadata(KEY.key, METHOD, callee.address, BODY, now_ms(), callee.boot)
    unsigned = grpc.StatusCode.UNAUTHENTICATED
    changed = AskRequest(call_json=wire.dumps(DeleteConnector("b")), hops=1).SerializeToString()
    with Served(callee) as served:
        assert sent(callee, BODY, ()) is unsigned
        assert sent(callee, BODY, good[:2]) is unsigned
        assert sent(callee, changed, good) is unsigned
        for given in (
            metadata(OTHER_KEY.key, METHOD, callee.address, BODY, now_ms(), callee.boot),
            metadata(KEY.key, METHOD, "another:1", BODY, now_ms(), callee.boot),
            metadata(KEY.key, "/another/Method", callee.address, BODY, now_ms(), callee.boot),
            metadata(KEY.key, METHOD, callee.address, BODY, now_ms()),
            signed_now(callee, -SKEW_MS - 60_000),
            signed_now(callee, SKEW_MS + 60_000),
        ):
            assert sent(callee, BODY, given) is unsigned
        assert not served.calls
        assert isinstance(sent(callee, BODY, good), Success)
        assert sent(callee, BODY, good) is unsigned, "replayed"
        assert len(served.calls) == 1


def test_signed_garbage_is_refused_by_name(world: GrpcWorld) -> None:
    callee = world.connect("two")
    for body in (
        b"\xff\xff",
        AskRequest(call_json=b'{"type": "Nonsense"}', hops=1).SerializeToString(),
        AskRequest(call_json=CALL_JSON, hops=0).SerializeToString(),
        AskRequest(call_json=CALL_JSON, hops=3).SerializeToString(),
    ):
        signed = metadata(KEY.key, METHOD, callee.address, body, now_ms(), callee.boot)
        result = sent(callee, body, signed)
        assert isinstance(result, Failure) and result.kind is ErrorKind.BAD_REQUEST


def test_one_that_has_not_read_the_newest_key_is_asked_again(world: GrpcWorld) -> None:
    """Nothing was done: the herder looks again a moment later."""
    caller, callee = world.connect("one"), world.connect("two")
    caller.keys.key = OTHER_KEY
    with Served(callee) as served:
        said = caller.peers.call("two", CALL, 1, 5_000)
        assert said.kind is ErrorKind.NOT_READY and "signature of the call is wrong" in said.message
        assert not served.calls
        callee.keys.key, callee.keys.also = OTHER_KEY, (KEY.key,)
        assert caller.peers.call("two", CALL, 1, 5_000)
        caller.keys.key = KEY
        assert isinstance(caller.peers.call("two", CALL, 1, 5_000), Success), (
            "an older key of the ring"
        )
    caller.keys.key = None
    said = caller.peers.call("two", CALL, 1, 5_000)
    assert said.kind is ErrorKind.NOT_READY and "session key" in said.message


def test_a_callee_that_stops_may_have_acted(world: GrpcWorld) -> None:
    caller, callee = world.connect("one"), world.connect("two")
    said: list[Any] = []

    def ask() -> None:
        try:
            said.append(caller.peers.call("two", CALL, 1, 20_000))
        except TransportError as error:
            said.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    until = time.monotonic() + 10
    while not callee.peers.incoming():
        assert time.monotonic() < until
        time.sleep(0.002)
    callee.server.close()
    thread.join()
    assert isinstance(said[0], TransportError) and "may still have acted" in str(said[0])
    again = caller.peers.call("two", CALL, 1, 500)
    assert again.kind is ErrorKind.UNREACHABLE, "surely nothing was asked"


# -- signatures, by a clock of the test --


def refused(verifier: Verifier, time_ms: int, key: bytes = b"k") -> str:
    given = dict(metadata(key, "m", "c", b"body", time_ms, verifier.boot))
    try:
        verifier.verify(given, "m", "c", b"body", (b"k",))
    except UnsignedError as error:
        return str(error)
    return ""


def test_clocks_that_differ_are_named() -> None:
    now = 1_000_000_000
    verifier = Verifier(lambda: now)
    assert not refused(verifier, now + SKEW_MS)
    assert "is 301 s ahead of that of this one" in refused(verifier, now + SKEW_MS + 1_000)
    assert "signature" in refused(verifier, now - 900_000, b"x"), "strangers learn nothing of it"
    now += 1_000_000
    assert "is 301 s behind that of this one" in refused(verifier, now - SKEW_MS - 1_000)
    assert not refused(verifier, now - SKEW_MS)


def test_a_call_is_taken_by_the_run_of_the_worker_that_it_is_signed_for() -> None:
    """After a restart the worker does not know which calls it has accepted before, however far
    ahead the caller's clock is."""
    now = 1_000_000_000
    before = Verifier(lambda: now)
    ahead = dict(metadata(b"k", "m", "c", b"body", now + SKEW_MS, before.boot))
    before.verify(ahead, "m", "c", b"body", (b"k",))
    verifier = Verifier(lambda: now)
    with pytest.raises(RestartedError):
        verifier.verify(ahead, "m", "c", b"body", (b"k",))
    with pytest.raises(UnsignedError, match="signature of the call is wrong"):
        verifier.verify({**ahead, signing.BOOT: verifier.boot}, "m", "c", b"body", (b"k",))
    assert not refused(verifier, now - SKEW_MS), "a clock that is behind"


def test_a_caller_signs_anew_for_a_worker_that_was_restarted(world: GrpcWorld) -> None:
    caller, callee = world.connect("one"), world.connect("two")
    with Served(callee) as served:
        assert isinstance(caller.peers.call("two", CALL, 1, 5_000), Success)
        callee.internal.verifier = Verifier(now_ms)
        assert isinstance(caller.peers.call("two", CALL, 1, 5_000), Success)
        callee.internal.verifier = Verifier(now_ms)
        with ThreadPoolExecutor(4) as pool:
            said = list(pool.map(lambda _: caller.peers.call("two", CALL, 1, 5_000), range(4)))
        assert all(isinstance(each, Success) for each in said), said
    assert served.calls == [CALL] * 6, "each was done once"


def test_the_table_of_calls_is_bounded_and_forgets_no_call_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signing, "NONCES_MAX", 3)
    now = 1_000_000_000
    verifier = Verifier(lambda: now)
    first = dict(metadata(b"k", "m", "c", b"body", now, verifier.boot))
    verifier.verify(first, "m", "c", b"body", (b"k",))
    assert not refused(verifier, now) and not refused(verifier, now)
    assert refused(verifier, now) == signing.FULL
    now += SKEW_MS
    with pytest.raises(UnsignedError, match="made before"):
        verifier.verify(first, "m", "c", b"body", (b"k",))
    now += 1
    assert not refused(verifier, now)
    with pytest.raises(UnsignedError, match="behind"):
        verifier.verify(first, "m", "c", b"body", (b"k",))
