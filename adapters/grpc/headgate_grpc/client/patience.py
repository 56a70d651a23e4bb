"""Timeouts and repetitions, for both kinds of client."""

import time
from typing import Any, Final

from headgate_grpc.client.errors import HeadgateError
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1.connector_service_pb2 import WaitConnectorRequest

TIMEOUT_S: Final = 90.0
"""How long a call may take, unless its caller says otherwise."""
AGAIN_S: Final = 0.5
"""Pause before a stream that has broken off is resumed."""


def wait_request(
    name: str,
    state: connector_pb2.State.ValueType | None,
    *,
    deleted: bool,
    stop_at_failure: bool,
    min_config_offset: int,
) -> WaitConnectorRequest:
    """Return the request to wait until the connector is deleted, or, without `deleted`, in `state`,
    or, without both, settled."""
    request = WaitConnectorRequest(
        name=name, stop_at_failure=stop_at_failure, min_config_offset=min_config_offset
    )
    if deleted:
        request.deleted = True
    elif state is not None:
        request.state = state
    else:
        request.settled = True
    return request


class Outage:
    """The time for which a stream has broken off again and again without a response."""

    def __init__(self, give_up_after_s: float) -> None:
        self._give_up_after_s = give_up_after_s
        self._since: float | None = None

    def over(self) -> None:
        """Note that a response has come."""
        self._since = None

    def broke_off(self, error: Any) -> None:
        """Note that the stream has broken off. If this returns, it may be resumed.

        Args:
            error: a `grpc.RpcError` of either kind of client.

        Raises:
            HeadgateError: the stream was refused, or has failed for too long.
        """
        refused = HeadgateError.of(error, reads=True)
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if refused.code != "UNAVAILABLE" or now - self._since > self._give_up_after_s:
            raise refused from error
