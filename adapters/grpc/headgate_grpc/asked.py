"""One call to a service: its time limit, its client, and the backend that answers it."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import grpc.aio

from headgate.herder.messages import Call, ErrorKind, Failure, Result, Success
from headgate_grpc.backend import Backend, TooManyError
from headgate_grpc.errors import MEANINGS, TOO_MANY, RefusedError

T = TypeVar("T")

LONGEST_MS: Final = 90_000
"""Connect's time limit. It is for calls without a deadline, or with a later one."""
SLACK_S: Final = 0.05
"""How long before the client's deadline the answer must be ready."""
_SAID: Final = re.compile(r"headgate \((\w{1,64}, process \d{1,10})\)", re.ASCII)
"""Beginning of the user agent of Headgate's clients on a Unix socket."""
STARTING: Final = (
    "Worker is still starting up. It answers once it has read its topics to their ends and joined "
    "its group; ask again, or ask another worker."
)


class Asked:
    """One call to a service.

    Args:
        context: gRPC's context of the call.
    """

    def __init__(self, backend: Backend, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        self.backend = backend
        left = context.time_remaining()
        longest_s = LONGEST_MS / 1000
        seconds = longest_s if left is None else min(max(left - SLACK_S, 0.001), longest_s)
        self._origin = f"over gRPC by {_client(context)}"
        self._until = asyncio.get_running_loop().time() + seconds

    def left_s(self) -> float:
        return max(self._until - asyncio.get_running_loop().time(), 0.0)

    def left_ms(self) -> int:
        return max(int(self.left_s() * 1000), 1)

    def check_ready(self) -> None:
        """Check that the backend answers calls.

        Raises:
            RefusedError: the worker is still starting.
        """
        if not self.backend.ready:
            raise RefusedError(MEANINGS[ErrorKind.NOT_READY], STARTING)

    async def result(self, call: Call) -> Result:
        """Return the herder's answer.

        Raises:
            RefusedError: the worker is still starting, or too many calls wait.
        """
        self.check_ready()
        try:
            return await self.backend.ask(call, self.left_ms(), self._origin)
        except TooManyError as error:
            raise RefusedError(TOO_MANY, str(error)) from None

    async def success(self, call: Call) -> Success:
        """Return the herder's answer.

        Raises:
            RefusedError: as `result`, or the answer is a `Failure`.
        """
        result = await self.result(call)
        if isinstance(result, Failure):
            raise RefusedError.of(result)
        return result

    async def value(self, call: Call) -> Any:
        """Return the value of the herder's answer. Raises as `success`."""
        return (await self.success(call)).value

    async def on_thread(self, work: Callable[[], T]) -> T:
        """Run a plugin's code on a thread and return its result. Its exceptions pass.

        Raises:
            RefusedError: the worker is still starting, or the code takes too long.
        """
        self.check_ready()
        left_ms = self.left_ms()
        try:
            return await self.backend.on_thread(work, left_ms)
        except TimeoutError:
            text = f"Request timed out. The plugin has not answered within {left_ms} ms."
            raise RefusedError(MEANINGS[ErrorKind.TIMEOUT], text) from None


def _client(context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """Return the client's address, for the log. On a Unix socket there is none, and it is what the
    client's user agent says.

    gRPC writes an address as ``ipv4:127.0.0.1:4321``, percent-encoded.
    """
    kind, _, address = unquote(context.peer()).partition(":")
    if kind in ("ipv4", "ipv6"):
        return address
    said = dict(context.invocation_metadata() or ()).get("user-agent", "")
    found = _SAID.match(said if isinstance(said, str) else said.decode("ascii", "replace"))
    return found[1] if found else "a local client"
