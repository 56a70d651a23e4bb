"""A client resumes a stream that breaks off again and again, until a limit."""

from types import SimpleNamespace

import grpc
import pytest

from headgate_grpc.client.errors import HeadgateError
from headgate_grpc.client.patience import Outage


class Broken(grpc.RpcError):
    """The error that gRPC raises at the end of a stream."""

    def __init__(self, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        self.code = lambda: code
        self.details = lambda: "gone"
        self.trailing_metadata = tuple


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    found = SimpleNamespace(now_s=7.0, monotonic=lambda: found.now_s)
    monkeypatch.setattr("headgate_grpc.client.patience.time", found)
    return found


def test_given_up_when_no_response_came_for_too_long(clock: SimpleNamespace) -> None:
    outage = Outage(10.0)
    outage.broke_off(Broken())
    clock.now_s += 10.0
    outage.broke_off(Broken())
    clock.now_s += 0.1
    with pytest.raises(HeadgateError, match="UNAVAILABLE: gone"):
        outage.broke_off(Broken())


def test_a_response_begins_the_time_anew(clock: SimpleNamespace) -> None:
    outage = Outage(10.0)
    outage.broke_off(Broken())
    clock.now_s += 9.0
    outage.over()
    clock.now_s += 9.0
    outage.broke_off(Broken())
    clock.now_s += 10.0
    outage.broke_off(Broken())


def test_a_stream_that_is_refused_is_not_taken_up() -> None:
    with pytest.raises(HeadgateError, match="NOT_FOUND"):
        Outage(10.0).broke_off(Broken(grpc.StatusCode.NOT_FOUND))
