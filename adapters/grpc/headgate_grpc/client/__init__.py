"""Clients of the gRPC API, for services that operate connectors.

>>> from headgate_grpc.client import connect
>>> with connect("unix:state/grpc.sock") as headgate:  # doctest: +SKIP
...     headgate.pause("orders")

`connect` returns a blocking client, `connect_async` one for asyncio. A method that fails raises
`HeadgateError`. Requests and answers are the messages of ``proto/headgate/v1``.
"""

from headgate_grpc.client.address import find_address
from headgate_grpc.client.aio import AsyncClient, connect_async
from headgate_grpc.client.errors import HeadgateError
from headgate_grpc.client.sync import Client, connect
from headgate_grpc.client.watching import Change

__all__ = [
    "AsyncClient",
    "Change",
    "Client",
    "HeadgateError",
    "connect",
    "connect_async",
    "find_address",
]
