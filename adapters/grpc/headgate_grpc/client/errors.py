"""The exception that clients raise."""

from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, message
from google.rpc import error_details_pb2, status_pb2

from headgate_grpc.errors import DETAILS_KEY, DOMAIN
from headgate_grpc.v1 import cluster_service_pb2, connector_service_pb2

_SAFE_REASONS: Final = frozenset({"NOT_READY", "CONFLICT", "TOO_MANY"})
_NOT_SENT: Final = ("failed to connect", "errors resolving", "DNS resolution failed")
"""Beginnings of gRPC's texts if there was no connection, so that nothing was sent."""
_ANSWER_S: Final = 0.5
"""How long before the client's deadline the server's answer may come."""
_BROKEN_OFF: Final = frozenset(
    {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL", "UNKNOWN"}
)
"""Codes that gRPC itself gives to a call without an answer."""


def _reading_requests() -> frozenset[str]:
    """Return the full names of the requests that change nothing."""
    none = descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS
    files = (connector_service_pb2.DESCRIPTOR, cluster_service_pb2.DESCRIPTOR)
    services = [each for file in files for each in file.services_by_name.values()]
    return frozenset(
        method.input_type.full_name
        for service in services
        for method in service.methods
        if method.GetOptions().idempotency_level == none
    )


_READS: Final = _reading_requests()


class HeadgateError(Exception):
    """A call has failed. `code` is the gRPC status code by name, such as NOT_FOUND."""

    def __init__(self, code: str, message: str, reason: str = "", *, reads: bool = False) -> None:
        """
        Args:
            reads: the call changes nothing.
        """
        self.code = code
        self.message = message
        self.reason = reason
        """A `headgate.v1.Reason` without its prefix, such as NOT_READY. Empty: the error did not
        come from Headgate."""
        self.broke_off = not reason and code in _BROKEN_OFF
        """Whether no answer came from Headgate: there was no connection, it was lost, or the server
        was silent."""
        self.not_sent = self.broke_off and message.startswith(_NOT_SENT)
        """Whether the call was surely not sent, because there was no connection."""
        self._reads = reads
        super().__init__(f"{code}: {message}{self._outcome}")

    def ended_early(self, left_s: float) -> bool:
        """Return whether the server has ended a wait although its caller has `left_s` seconds
        left."""
        return self.reason == "STILL_WAITING" and left_s > _ANSWER_S

    @property
    def may_be_repeated(self) -> bool:
        """Whether the call surely changed nothing, and may succeed if it is repeated."""
        return self.reason in _SAFE_REASONS or (self.broke_off and (self.not_sent or self._reads))

    @property
    def may_have_been_done(self) -> bool:
        """Whether the call may have changed something although it failed. Read the connector before
        you repeat the call."""
        if self._reads:
            return False
        return self.reason == "OUTCOME_UNKNOWN" or (self.broke_off and not self.not_sent)

    @property
    def _outcome(self) -> str:
        if not self.broke_off:
            return ""
        if self.not_sent:
            return " (there was no connection: the call was surely not asked)"
        if self._reads:
            return " (no answer has come: the call changes nothing, ask again)"
        return " (no answer has come: it may have been done, look before you ask again)"

    @classmethod
    def of(
        cls, error: Any, request: message.Message | None = None, *, reads: bool = False
    ) -> "HeadgateError":
        """Make the exception for an error of gRPC.

        Args:
            error: a `grpc.RpcError` of either kind of client.
            request: the request, which tells whether the call changes nothing. None: `reads` tells.
        """
        code: grpc.StatusCode = error.code()
        if request is not None:
            reads = request.DESCRIPTOR.full_name in _READS
        return cls(code.name, error.details() or "", _reason(error), reads=reads)


def _reason(error: Any) -> str:
    for key, value in error.trailing_metadata() or ():
        if key != DETAILS_KEY:
            continue
        try:
            status = status_pb2.Status.FromString(value)
        except message.DecodeError:
            return ""
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return str(info.reason)
    return ""
