"""Shutting out producers by their transactional ids. Source: KIP-618, `Admin.fenceProducers`.

Neither Python client has that call. The request beneath it, InitProducerId alone, goes to each
id's coordinator, many at a time: a thousand ids in well under a second. What kafka-python keeps to
itself for that is used here and nowhere else; its version is pinned.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka.admin import KafkaAdminClient
from kafka.errors import AuthorizationError, KafkaError
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer.transaction import InitProducerIdRequest

from headgate.ports import TopicPartition, TransportError

FENCE_MS: Final = 90_000
"""As Connect's leader."""
_WINDOW: Final = 256
_IN_PROGRESS: Final = frozenset({14, 15, 16, 51})
"""Coordinator loading, not available, moved; transaction being aborted. Asked again."""
_RETRY_S: Final = 0.01
_LOOKUP_RETRY_S: Final = 0.1
LOOKUP_MS: Final = 15_000
_TRANSACTION_MS: Final = 60_000
_REASONS: Final = {
    49: "the producer id is not that of the transactional id",
    53: "the principal needs Write and Describe on the transactional id",
    50: "the broker's transaction.max.timeout.ms is below 60 s",
}


class RawAdmin:
    """kafka-python's admin client, made when first needed. Safe from several threads."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self.servers = str(settings.get("bootstrap_servers", ""))
        self._mutex = threading.Lock()
        self._client: KafkaAdminClient | None = None

    def fence(self, transactional_ids: Sequence[str], timeout_ms: int) -> dict[str, int]:
        """Error code by id (0: shut out); an id that is not in it did not answer in time."""
        deadline = time.monotonic() + timeout_ms / 1000
        with self._mutex:
            client = self._made()
            found: dict[str, int] = {}

            async def fence() -> None:
                todo = list(dict.fromkeys(transactional_ids))
                while todo and time.monotonic() < deadline:
                    todo = await _round(client, todo, found, deadline)
                    if todo:
                        await client._net.sleep(_RETRY_S)

            self._run(client, fence, f"{len(transactional_ids)} transactional ids were not fenced")
            return found

    def refused_lookup(self, transactional_id: str) -> str | None:
        """Why this principal may not even find the coordinator of the id; None: it may."""

        deadline = time.monotonic() + LOOKUP_MS / 1000

        async def look() -> None:
            await _coordinators(client, [transactional_id], deadline)

        with self._mutex:
            client = self._made()
            try:
                client._manager.run(look)
            except AuthorizationError as error:
                return str(error)
            except (KafkaError, OSError) as error:
                what = f"the coordinator of transactional id {transactional_id!r} was not found"
                raise self._failed(what, error) from None
        return None

    def refused_init(self, transactional_id: str) -> str | None:
        """Why this principal may not initialise a producer with the id; None: it may, and whoever
        held it is shut out."""
        refused = self.refused_lookup(transactional_id)
        if refused is not None:
            return refused
        code = self.fence([transactional_id], FENCE_MS).get(transactional_id)
        return None if code == 0 else f"error {code}{_reason(code or 0)}"

    def transaction_state(self, transactional_id: str) -> str | None:
        """The coordinator's word for it, such as ``Ongoing``; None when it cannot be had."""
        with self._mutex:
            try:
                found = self._made().describe_transactions([transactional_id])
            except (KafkaError, OSError, TransportError):
                return None
        return str(found[transactional_id].state.value)

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        from kafka import TopicPartition as Place

        with self._mutex:
            client = self._made()
            what = f"offsets of group {group!r} could not be deleted"
            try:
                found = client.delete_group_offsets(group, [Place(*each) for each in partitions])
            except KafkaError as error:
                raise self._failed(what, error) from None
            errors = {f"{k.topic}-{k.partition}": e for k, e in found.items() if _is_error(e)}
            if errors:
                raise TransportError(f"{what} at {self.servers}: {errors}")

    def close(self) -> None:
        with self._mutex:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _made(self) -> KafkaAdminClient:
        if self._client is None:
            try:
                self._client = KafkaAdminClient(
                    **self._settings, max_in_flight_requests_per_connection=_WINDOW
                )
            except KafkaError as error:
                raise self._failed("no connection for administration", error) from None
        return self._client

    def _run(self, client: KafkaAdminClient, coroutine: Any, what: str) -> None:
        try:
            client._manager.run(coroutine)
        except (KafkaError, OSError) as error:
            raise self._failed(what, error) from None

    def _failed(self, what: str, error: Exception) -> TransportError:
        code = getattr(error, "errno", None)
        reason = _REASONS.get(code, "") if isinstance(code, int) else ""
        told = f"{type(error).__name__}: {error}" + (f"; {reason}" if reason else "")
        return TransportError(f"{what} at {self.servers}: {told}")


async def _coordinators(
    client: KafkaAdminClient, ids: Sequence[str], deadline: float
) -> Mapping[str, Any]:
    """Node by transactional id. A broker that was never asked for any makes their topic first."""
    while True:
        try:
            found: Mapping[str, Any] = await client._find_coordinator_ids(
                ids, key_type=CoordinatorType.TRANSACTION
            )
        except KafkaError as error:
            if error.errno not in _IN_PROGRESS or time.monotonic() > deadline:
                raise
            await client._net.sleep(_LOOKUP_RETRY_S)
        else:
            return found


async def _round(
    client: KafkaAdminClient, todo: Sequence[str], found: dict[str, int], deadline: float
) -> list[str]:
    """One request per id; those that are to be asked again."""
    coordinators = await _coordinators(client, todo, deadline)
    again: list[str] = []
    for first in range(0, len(todo), _WINDOW):
        sent = [
            (
                each,
                client._manager.send(
                    InitProducerIdRequest(
                        transactional_id=each,
                        transaction_timeout_ms=_TRANSACTION_MS,
                        producer_id=-1,
                        producer_epoch=-1,
                        max_version=4,
                    ),
                    node_id=coordinators[each],
                ),
            )
            for each in todo[first : first + _WINDOW]
        ]
        for each, answer in sent:
            code = (await answer).error_code
            if code in _IN_PROGRESS:
                again.append(each)
            else:
                found[each] = code
    return again


class KafkaFencer:
    def __init__(self, admin: RawAdmin, timeout_ms: int = FENCE_MS) -> None:
        self._admin = admin
        self._timeout_ms = timeout_ms

    def fence(self, transactional_ids: Sequence[str]) -> None:
        """
        Raises:
            TransportError: not all are known to be shut out; trying again does no harm.
        """
        if not transactional_ids:
            return
        found = self._admin.fence(transactional_ids, self._timeout_ms)
        silent = [each for each in transactional_ids if each not in found]
        refused = {each: code for each, code in found.items() if code != 0}
        if not silent and not refused:
            return
        parts = [f"{each}: error {code}{_reason(code)}" for each, code in refused.items()]
        if silent:
            parts.append(f"no answer within {self._timeout_ms} ms for {', '.join(silent[:5])}")
        raise TransportError(
            f"{len(silent) + len(refused)} of {len(transactional_ids)} producers were not fenced "
            f"at {self._admin.servers}: {'; '.join(parts[:5])}"
        )


def _reason(code: int) -> str:
    known = _REASONS.get(code)
    return f" ({known})" if known else ""


def _is_error(result: Any) -> bool:
    return getattr(result, "errno", 0) != 0
