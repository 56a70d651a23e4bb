"""Calls from worker to worker, by a table of calls with deadlines. Each call is taken once and
answered once."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate import wire
from headgate.herder.calls import Call, ErrorKind, Failure, Result, Success
from headgate.ports import Clock, IncomingCall, TransportError
from headgate_embedded.database import Database, Watch
from headgate_embedded.machine import boot_id

KEPT_MS: Final = 60_000
"""How long calls are kept after their deadline. The next call of any worker deletes them."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The payload of a call in the table."""

    call: Call
    origin: str


class EmbeddedPeers:
    """The peers port of the worker at `url` ("" for a process that only calls)."""

    def __init__(self, database: Database, clock: Clock, url: str) -> None:
        self._database = database
        self._clock = clock
        self._url = url
        self._boot = boot_id()
        self._watch = Watch(database)

    def call(self, url: str, call: Call, hops: int, timeout_ms: int, origin: str = "") -> Result:
        call_id, payload = uuid.uuid4().hex, wire.dumps(_Asked(call, origin))
        deadline_ms = self._clock.now_ms() + timeout_ms
        with self._database.write(synced=False) as connection:
            connection.execute(
                "delete from calls where boot <> ? or deadline_ms < ?",
                (self._boot, deadline_ms - timeout_ms - KEPT_MS),
            )
            connection.execute(
                "insert into calls(id, url, payload, hops, boot, deadline_ms) "
                "values(?, ?, ?, ?, ?, ?)",
                (call_id, url, payload, hops, self._boot, deadline_ms),
            )
        watch = Watch(self._database)
        try:
            while True:
                if watch.changed():
                    answer = self._answer_of(call_id)
                    if answer is not None:
                        break
                if self._clock.now_ms() >= deadline_ms:
                    answer = self._give_up(call_id)
                    break
                time.sleep(0.002)
        finally:
            watch.close()
        if answer is None:
            raise TransportError(
                f"{url} did not answer within {timeout_ms} ms; it may still have acted"
            )
        try:
            result: Result = wire.loads(Success | Failure, answer)
        except wire.WireError as error:
            raise TransportError(f"{url} gave an answer that nobody can read: {error}") from error
        return result

    def incoming(self) -> Sequence[IncomingCall]:
        if not self._watch.changed():
            return []
        with self._watch.looking():
            return self._taken()

    def _taken(self) -> Sequence[IncomingCall]:
        parameters = (self._url, self._boot, self._clock.now_ms())
        condition = "url = ? and taken = 0 and boot = ? and deadline_ms > ?"
        with self._database.read() as connection:
            # All rows are fetched: an unfinished cursor would keep its snapshot, on which no write
            # can begin.
            if not connection.execute(
                f"select 1 from calls where {condition} limit 1", parameters
            ).fetchall():
                return []
        with self._database.write(synced=False) as connection:
            rows: list[Any] = connection.execute(
                f"update calls set taken = 1 where {condition} "
                "returning id, payload, hops, deadline_ms",
                parameters,
            ).fetchall()
        now_ms = self._clock.now_ms()
        rows.sort(key=lambda row: (row[3], row[0]))
        found: list[IncomingCall] = []
        for call_id, payload, hops, deadline_ms in rows:
            try:
                asked = wire.loads(_Asked, payload)
            except wire.WireError as error:  # made by another release, or by no worker
                text = f"malformed call: {error}"
                self.answer(call_id, Failure(ErrorKind.BAD_REQUEST, text))
                continue
            left_ms = max(deadline_ms - now_ms, 0)
            found.append(IncomingCall(call_id, asked.call, hops, left_ms, asked.origin))
        return found

    def answer(self, call_id: str, result: Result) -> None:
        payload = wire.dumps(result)
        with self._database.write(synced=False) as connection:
            connection.execute(
                "update calls set answer = ? where id = ? and answer is null", (payload, call_id)
            )

    def close(self) -> None:
        self._watch.close()

    def _answer_of(self, call_id: str) -> bytes | None:
        with self._database.read() as connection:
            row = connection.execute(
                "select answer from calls where id = ? and answer is not null", (call_id,)
            ).fetchone()
        if row is None:
            return None
        self._give_up(call_id)
        return bytes(row[0])

    def _give_up(self, call_id: str) -> bytes | None:
        """Remove a call. Return its answer, if there is one by now."""
        with self._database.write(synced=False) as connection:
            row = connection.execute(
                "delete from calls where id = ? returning answer", (call_id,)
            ).fetchone()
        return None if row is None or row[0] is None else bytes(row[0])
