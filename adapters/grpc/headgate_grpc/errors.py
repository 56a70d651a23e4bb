"""Errors of the API: the gRPC status for each kind of `Failure`.

A status travels in HTTP/2 trailers, which transports limit to something between 8 and 16 KiB. So
texts are cut here, and status and details together stay below 4 KiB.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from headgate.herder.messages import ErrorKind, Failure
from headgate_grpc.v1 import connector_service_pb2 as service_pb2

DOMAIN: Final = "headgate"
DETAILS_KEY: Final = "grpc-status-details-bin"
ENCODED_MAX: Final = 1_500
"""Longest text of an error, in bytes after percent-encoding, as it travels. It travels a second
time in the details, in base64."""
CUT: Final = " ... (cut)"
RETRY_S: Final = 1


class Meaning(NamedTuple):
    code: grpc.StatusCode
    reason: service_pb2.Reason.ValueType
    retry: bool = False
    """Nothing was changed, and the same call may succeed later."""


MEANINGS: Final[Mapping[ErrorKind, Meaning]] = {
    ErrorKind.BAD_REQUEST: Meaning(
        grpc.StatusCode.INVALID_ARGUMENT, service_pb2.REASON_BAD_REQUEST
    ),
    ErrorKind.FORBIDDEN: Meaning(grpc.StatusCode.PERMISSION_DENIED, service_pb2.REASON_FORBIDDEN),
    ErrorKind.NOT_FOUND: Meaning(grpc.StatusCode.NOT_FOUND, service_pb2.REASON_NOT_FOUND),
    ErrorKind.ALREADY_EXISTS: Meaning(
        grpc.StatusCode.ALREADY_EXISTS, service_pb2.REASON_ALREADY_EXISTS
    ),
    ErrorKind.CONFLICT: Meaning(grpc.StatusCode.ABORTED, service_pb2.REASON_CONFLICT, retry=True),
    ErrorKind.PRECONDITION: Meaning(grpc.StatusCode.ABORTED, service_pb2.REASON_ETAG_MISMATCH),
    ErrorKind.INTERNAL: Meaning(grpc.StatusCode.INTERNAL, service_pb2.REASON_INTERNAL),
    ErrorKind.TIMEOUT: Meaning(
        grpc.StatusCode.DEADLINE_EXCEEDED, service_pb2.REASON_OUTCOME_UNKNOWN
    ),
    ErrorKind.NOT_READY: Meaning(
        grpc.StatusCode.UNAVAILABLE, service_pb2.REASON_NOT_READY, retry=True
    ),
    ErrorKind.UNREACHABLE: Meaning(
        grpc.StatusCode.UNAVAILABLE, service_pb2.REASON_NOT_READY, retry=True
    ),
}
TOO_MANY: Final = Meaning(
    grpc.StatusCode.RESOURCE_EXHAUSTED, service_pb2.REASON_TOO_MANY, retry=True
)
CONNECTOR_FAILED: Final = Meaning(
    grpc.StatusCode.FAILED_PRECONDITION, service_pb2.REASON_CONNECTOR_FAILED
)
STILL_WAITING: Final = Meaning(grpc.StatusCode.DEADLINE_EXCEEDED, service_pb2.REASON_STILL_WAITING)


class RefusedError(Exception):
    """An error that a call is answered with."""

    def __init__(self, meaning: Meaning, message: str) -> None:
        super().__init__(message)
        self.meaning = meaning
        self.message = short(message)

    @classmethod
    def of(cls, failure: Failure) -> "RefusedError":
        return cls(MEANINGS[failure.kind], failure.message)

    @property
    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        """Trailing metadata with a google.rpc.Status, which has ErrorInfo, and RetryInfo if a retry
        may help."""
        reason = service_pb2.Reason.Name(self.meaning.reason).removeprefix("REASON_")
        status = status_pb2.Status(code=self.meaning.code.value[0], message=self.message)
        status.details.append(_packed(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN)))
        if self.meaning.retry:
            delay = duration_pb2.Duration(seconds=RETRY_S)
            status.details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
        return ((DETAILS_KEY, status.SerializeToString()),)


def bad_request(message: str) -> RefusedError:
    return RefusedError(MEANINGS[ErrorKind.BAD_REQUEST], message)


def not_found(message: str) -> RefusedError:
    return RefusedError(MEANINGS[ErrorKind.NOT_FOUND], message)


def short(message: str) -> str:
    """Return `message` cut to `ENCODED_MAX`, with characters replaced that UTF-8 cannot carry."""
    clean = message.encode("utf-8", "replace").decode()
    if _encoded_length(clean) <= ENCODED_MAX:
        return clean
    room = ENCODED_MAX - _encoded_length(CUT)
    kept = clean[:room]
    while _encoded_length(kept) > room:
        kept = kept[: len(kept) - max(1, (_encoded_length(kept) - room) // 12)]
    return kept + CUT


def _encoded_length(text: str) -> int:
    """Return the length of `text` as gRPC writes it into a trailer. A byte that is not printable
    ASCII takes three."""
    return len(quote(text, safe=_PRINTABLE))


_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def _packed(detail: "error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo") -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed
