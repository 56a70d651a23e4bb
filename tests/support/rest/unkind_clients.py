"""Clients that try to break a server: ``python -m support.rest.unkind_clients URL SECONDS FILE``.

The clients of each kind go on until the time is over, with connections of their own. A client that
is disconnected connects again. At the end one line of JSON says how often each kind connected. The
validations that use `FILE` hang while that file exists, see `hanging_source`.
"""

import asyncio
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from support.rest.hanging_source import CLASS

MIB = 1_048_576
_SINK = {
    "connector.class": "FileStreamSink",
    "name": "n",
    "topics": "t",
    "file": "/dev/null",
}
PAUSE_S = 1.0
"""Seconds between two connections of one client."""


class Clients:
    def __init__(self, url: str, seconds: float, file: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.until = time.monotonic() + seconds
        self.file = file
        self.connected = Counter[str]()

    async def run(self) -> None:
        kinds: dict[Callable[[Any, Any], Awaitable[None]], int] = {
            self.silent: 300,
            self.half_head: 50,
            self.dripped_body: 50,
            self.many_headers: 20,
            self.long_header: 5,
            self.announced_body: 12,
            self.unfinished_body: 50,
            self.endless_chunks: 4,
            self.smallest_chunks: 4,
            self.lists: 2,
            self.keys: 2,
            self.no_reader: 10,
            self.no_http: 5,
            self.hung_validation: 20,
            self.hung_put: 20,
            self.transforms: 3,
            self.expressions: 2,
            self.endless_expression: 20,
            self.large_tasks: 1,
            self.digits: 2,
        }
        await asyncio.gather(
            *(self._again(kind) for kind, count in kinds.items() for _ in range(count))
        )

    async def _again(self, kind: Callable[[Any, Any], Awaitable[None]]) -> None:
        while time.monotonic() < self.until:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(10):
                    reader, writer = await asyncio.open_connection(self.host, self.port)
                self.connected[kind.__name__] += 1
                try:
                    async with asyncio.timeout(max(0.0, self.until - time.monotonic())):
                        await kind(reader, writer)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(PAUSE_S)

    # -- slow --

    async def silent(self, reader: Any, _writer: Any) -> None:
        await reader.read(1)

    async def half_head(self, _reader: Any, writer: Any) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        while True:
            await self._sent(writer, b"a")
            await asyncio.sleep(5)

    async def dripped_body(self, _reader: Any, writer: Any) -> None:
        writer.write(_head("POST /connectors", "Content-Length: 100000"))
        while True:
            await self._sent(writer, b" ")
            await asyncio.sleep(5)

    async def no_reader(self, _reader: Any, writer: Any) -> None:
        """Ask for more than the buffers on the way can hold, and read none of it."""
        for _ in range(100):
            await self._sent(writer, _head("GET /connectors/large/config"))
        await asyncio.sleep(60)

    # -- huge --

    async def many_headers(self, reader: Any, writer: Any) -> None:
        await self._sent(writer, _head("GET /", *(f"X{n}: a" for n in range(9_000))))
        await reader.read(MIB)

    async def long_header(self, reader: Any, writer: Any) -> None:
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        while True:
            await self._sent(writer, b"a" * 65_536)

    async def announced_body(self, reader: Any, writer: Any) -> None:
        writer.write(_head("POST /connectors", f"Content-Length: {60 * MIB}"))
        for _ in range(60):
            await self._sent(writer, b" " * (MIB - 1))
        await reader.read(MIB)

    async def unfinished_body(self, reader: Any, writer: Any) -> None:
        """Send all of a body but its last byte. The body is just within the limit."""
        writer.write(_head("POST /connectors", f"Content-Length: {MIB}"))
        await self._sent(writer, b" " * (MIB - 1))
        await reader.read(1)

    async def endless_chunks(self, reader: Any, writer: Any) -> None:
        writer.write(_head("POST /connectors", "Transfer-Encoding: chunked"))
        while True:
            await self._sent(writer, b"10000\r\n" + b" " * 65_536 + b"\r\n")

    async def smallest_chunks(self, reader: Any, writer: Any) -> None:
        writer.write(_head("POST /connectors", "Transfer-Encoding: chunked"))
        while True:
            await self._sent(writer, b"1\r\n \r\n" * 10_000)

    async def lists(self, reader: Any, writer: Any) -> None:
        await self._asked(reader, writer, "POST /connectors", b"[" + b"[]," * 349_000 + b"0]")

    async def keys(self, reader: Any, writer: Any) -> None:
        text = ",".join(f'"{n:x}":1' for n in range(100_000))
        await self._asked(reader, writer, "PUT /connectors/x/config", f"{{{text}}}".encode())

    async def no_http(self, reader: Any, writer: Any) -> None:
        await self._sent(writer, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        await reader.read(MIB)

    # -- hung --

    async def hung_validation(self, reader: Any, writer: Any) -> None:
        path = "/connector-plugins/HangingSource/config/validate"
        async with asyncio.timeout(3):
            await self._asked(reader, writer, f"PUT {path}", self._config())

    async def hung_put(self, reader: Any, writer: Any) -> None:
        async with asyncio.timeout(3):
            await self._asked(reader, writer, "PUT /connectors/hung/config", self._config())

    # -- configs that cost much --

    async def transforms(self, reader: Any, writer: Any) -> None:
        aliases = [f"t{n}" for n in range(1_000)]
        kinds = {f"transforms.{alias}.type": "RegexRouter" for alias in aliases}
        await self._validated(reader, writer, {"transforms": ",".join(aliases), **kinds})

    async def expressions(self, reader: Any, writer: Any) -> None:
        """Send a regular expression that is different each time, so that no compiled one is
        cached."""
        pattern = "(a|b)*" * 9_000 + str(random.random()).replace(".", "")
        await self._validated(reader, writer, {"topics": "", "topics.regex": pattern})

    async def endless_expression(self, reader: Any, writer: Any) -> None:
        topics = {"topics": "", "topics.regex": "(a+)+b"}
        letters = {"errors.deadletterqueue.topic.name": "a" * 60}
        await self._validated(reader, writer, {**topics, **letters})

    async def large_tasks(self, reader: Any, writer: Any) -> None:
        config = {**_SINK, "tasks.max": "100000", "x": "y" * 400_000}
        line = "PUT /connectors/large-tasks/config"
        await self._asked(reader, writer, line, json.dumps(config).encode())

    async def digits(self, reader: Any, writer: Any) -> None:
        header = f"Headgate-Timeout-Ms: {'9' * 6_000}"
        await self._sent(writer, _head(f"GET /connectors/x/tasks/{'9' * 6_000}/status", header))
        await reader.read(65_536)

    async def _validated(self, reader: Any, writer: Any, config: Mapping[str, str]) -> None:
        line = "PUT /connector-plugins/FileStreamSink/config/validate"
        await self._asked(reader, writer, line, json.dumps({**_SINK, **config}).encode())

    def _config(self) -> bytes:
        return json.dumps({"connector.class": CLASS, "hangs.while": self.file}).encode()

    async def _asked(self, reader: Any, writer: Any, line: str, body: bytes) -> None:
        await self._sent(writer, _head(line, f"Content-Length: {len(body)}") + body)
        await reader.read(65_536)

    async def _sent(self, writer: Any, data: bytes) -> None:
        writer.write(data)
        await writer.drain()


def _head(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: x", *headers, "", "")).encode()


def main(url: str, seconds: str, file: str) -> None:
    clients = Clients(url, float(seconds), file)
    asyncio.run(clients.run())
    print(json.dumps(clients.connected))


if __name__ == "__main__":
    main(*sys.argv[1:])
