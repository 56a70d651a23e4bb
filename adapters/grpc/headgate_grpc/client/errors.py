"""What a client raises."""

from typing import Any, Final

import grpc
from google.protobuf import message
from google.rpc import error_details_pb2, status_pb2

from headgate_grpc.errors import DETAILS_KEY, DOMAIN

_SAFE_REASONS: Final = frozenset({"NOT_READY", "CONFLICT", "TOO_MANY"})


class HeadgateError(Exception):
    """A call has failed. `code` is the gRPC status code by name, such as NOT_FOUND."""

    def __init__(self, code: str, message: str, reason: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        """One of `headgate.v1.Reason` without its prefix, such as NOT_READY. Empty: the answer did
        not come from Headgate, so that it is not known what became of the call."""

    @property
    def may_be_repeated(self) -> bool:
        """Nothing was changed, and the same call may be answered later."""
        return self.reason in _SAFE_REASONS

    @classmethod
    def of(cls, error: Any) -> "HeadgateError":
        """`error`: a `grpc.RpcError` of either kind of client."""
        code: grpc.StatusCode = error.code()
        return cls(code.name, error.details() or "", _reason(error))


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
