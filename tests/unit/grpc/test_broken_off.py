"""A client's error says what is known of a call that was not answered."""

import grpc
import pytest

from headgate_grpc.client.errors import HeadgateError
from headgate_grpc.v1 import connector_service_pb2 as pb

PAUSE, READ = pb.PauseConnectorRequest(name="c"), pb.ReadOffsetsRequest(name="c")
REFUSED = "failed to connect to all addresses; last error: refused"


class Told:
    """The part of a `grpc.RpcError` that the client looks at."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self._code, self._text = code, text

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._text

    def trailing_metadata(self) -> None:
        return None


@pytest.mark.parametrize(
    ("request_", "code", "text", "done", "again"),
    [
        (PAUSE, "UNAVAILABLE", "Socket closed", True, False),
        (PAUSE, "DEADLINE_EXCEEDED", "Deadline Exceeded", True, False),
        (PAUSE, "INTERNAL", "Received RST_STREAM with error code 2", True, False),
        (PAUSE, "UNAVAILABLE", REFUSED, False, True),
        (READ, "UNAVAILABLE", "Socket closed", False, True),
        (READ, "UNAVAILABLE", REFUSED, False, True),
        (PAUSE, "RESOURCE_EXHAUSTED", "message larger than max", False, False),
    ],
)
def test_what_is_known(
    request_: pb.PauseConnectorRequest, code: str, text: str, done: bool, again: bool
) -> None:
    error = HeadgateError.of(Told(grpc.StatusCode[code], text), request_)
    assert (error.may_have_been_done, error.may_be_repeated) == (done, again)
    assert error.not_sent is (text == REFUSED)
    assert error.message == text and text in str(error)


@pytest.mark.parametrize(
    ("reason", "done", "again"),
    [("OUTCOME_UNKNOWN", True, False), ("NOT_READY", False, True), ("NOT_FOUND", False, False)],
)
def test_an_answer_of_headgate_says_it_itself(reason: str, done: bool, again: bool) -> None:
    error = HeadgateError("UNAVAILABLE", "text", reason)
    assert not error.broke_off
    assert (error.may_have_been_done, error.may_be_repeated) == (done, again)
    assert str(error) == "UNAVAILABLE: text"
