"""Errors of the gRPC API: one table for the code, the docs and the REST API, and short texts."""

import re
from pathlib import Path

import pytest
from google.rpc import error_details_pb2, status_pb2

from headgate.herder.messages import ErrorKind, Failure
from headgate_grpc.errors import MEANINGS, RefusedError, short
from headgate_grpc.v1 import connector_service_pb2 as service_pb2
from headgate_rest.translate import STATUSES

PAGE = Path(__file__).resolve().parents[3] / "docs/run/grpc.md"


def test_the_page_has_every_kind_of_error_with_what_it_is_to_clients() -> None:
    rows = re.findall(
        r"^\| ([a-z ]+) \| (\d+) \| ([A-Z_]+) \| ([A-Z_]+) \| (yes|no) \|$",
        PAGE.read_text(),
        re.MULTILINE,
    )
    wanted = [
        (
            kind.value,
            str(STATUSES[kind]),
            MEANINGS[kind].code.name,
            service_pb2.Reason.Name(MEANINGS[kind].reason).removeprefix("REASON_"),
            "yes" if MEANINGS[kind].retry else "no",
        )
        for kind in ErrorKind
    ]
    assert rows == wanted


@pytest.mark.parametrize(
    "text",
    ["x" * 100_000, "é" * 100_000, "\N{PILE OF POO}" * 50_000, "\ud800" * 9_000, "a%b" * 9_000],
)
def test_status_and_details_stay_below_four_kibibytes(text: str) -> None:
    refusal = RefusedError.of(Failure(ErrorKind.NOT_READY, text))
    encoded = sum(1 if 0x20 <= b < 0x7F and b != 0x25 else 3 for b in refusal.message.encode())
    details = sum(len(value) * 4 // 3 + len(key) for key, value in refusal.trailers)
    assert encoded + details < 4_096
    assert refusal.message.endswith("(cut)")


def test_a_short_text_stays_as_it_is() -> None:
    assert short("Connector orders not found") == "Connector orders not found"
    assert short("half \ud800 pair") == "half ? pair"


def test_details_say_the_reason_and_whether_to_ask_again() -> None:
    ((_, value),) = RefusedError.of(Failure(ErrorKind.CONFLICT, "a rebalance")).trailers
    status = status_pb2.Status.FromString(value)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info) and status.details[1].Unpack(retry)
    assert (info.domain, info.reason) == ("headgate", "CONFLICT")
    assert retry.retry_delay.seconds == 1
