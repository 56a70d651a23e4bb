"""The callee's side of calls between workers: ``headgate.internal.v1.WorkerService``, which is
served beside the public services."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf import message

from headgate import wire
from headgate.errors import CoreError
from headgate.herder.messages import Call, ErrorKind, Failure, Result
from headgate.herder.session_keys import KeyRing
from headgate_grpc.backend import TooManyError
from headgate_grpc.internal.signing import BOOT, RestartedError, UnsignedError, Verifier
from headgate_grpc.internal.v1.worker_service_pb2 import AskRequest, AskResponse

SERVICE: Final = "headgate.internal.v1.WorkerService"
METHOD: Final = f"/{SERVICE}/Ask"
LONGEST_S: Final = 90.0
NO_KEY: Final = (
    "This worker is still starting up and has not been able to read a session key from the config "
    "topic yet"
)
HOPS_MAX: Final = 2

Ask = Callable[[Call, int, int], Awaitable[Result]]
"""Executes a call, given its hops and its time limit in ms."""


class WorkerService:
    """The service. It belongs to the server's loop.

    Args:
        ask: passes a call to the herder.
        session_keys: returns the keys with which calls are verified.
    """

    def __init__(
        self,
        ask: Ask,
        session_keys: Callable[[], KeyRing],
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._ask = ask
        self._session_keys = session_keys
        self.verifier = Verifier(wall_ms)
        self.address = ""
        """The address under which other workers call this one. A call that is signed for another
        address is refused."""

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler. It gets requests as bytes, since these are what is signed."""
        return grpc.method_handlers_generic_handler(
            SERVICE, {"Ask": grpc.unary_unary_rpc_method_handler(self._answer)}
        )

    async def _answer(self, body: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> bytes:
        ring = self._session_keys()
        if ring.current is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, NO_KEY)
            raise AssertionError("abort raises")
        given = dict(context.invocation_metadata() or ())
        try:
            keys = (ring.current.key, *ring.also)
            self.verifier.verify(given, METHOD, self.address, body, keys)
        except UnsignedError as error:
            told = isinstance(error, RestartedError)
            trailing = ((BOOT, self.verifier.boot),) if told else ()
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error), trailing)
        result = await self._result(body, context.time_remaining())
        return AskResponse(result_json=wire.dumps(result)).SerializeToString()

    async def _result(self, body: bytes, left_s: float | None) -> Result:
        try:
            request = AskRequest.FromString(body)
            call: Call = wire.loads(Call, request.call_json)
        except (message.DecodeError, CoreError) as error:
            text = f"The call cannot be read: {error}. Its worker may be of another Headgate"
            return Failure(ErrorKind.BAD_REQUEST, text)
        if not 1 <= request.hops <= HOPS_MAX:
            text = f"hops is {request.hops}; expected 1 to {HOPS_MAX}"
            return Failure(ErrorKind.BAD_REQUEST, text)
        seconds = LONGEST_S if left_s is None else min(left_s, LONGEST_S)
        try:
            return await self._ask(call, request.hops, max(int(seconds * 1000), 1))
        except TooManyError as error:
            return Failure(ErrorKind.NOT_READY, str(error))
