"""The requests of `RawAdmin`, over kafka-python.

Neither Python client has `Admin.fenceProducers`. This module sends the request on which that is
built, InitProducerId, to the coordinator of each transactional id, many at a time. A thousand ids
take well under a second. For that it uses internals of kafka-python, whose version is pinned.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka import TopicPartition as Place
from kafka.admin import KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    GroupSubscribedToTopicError,
    KafkaError,
    NonEmptyGroupError,
)
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer.transaction import InitProducerIdRequest

from headgate.ports import GroupInUseError, TopicPartition, TransportError

_WINDOW: Final = 256
_IN_PROGRESS: Final = frozenset({14, 15, 16, 51})
"""Error codes after which a request is repeated: the coordinator is loading, not available or has
moved, or the id's transaction is being aborted."""
_HAS_MEMBERS: Final = (GroupSubscribedToTopicError, NonEmptyGroupError)
_RETRY_S: Final = 0.01
_LOOKUP_RETRY_S: Final = 0.1
LOOKUP_MS: Final = 15_000
NAMED_MAX: Final = 5
_TRANSACTION_MS: Final = 60_000


class RawClient:
    """The connected client behind `RawAdmin`, with the same methods. For one thread at a time."""

    def __init__(self, settings: Mapping[str, Any], servers: str, principal: str) -> None:
        """Connect to a broker.

        Args:
            principal: the principal as which brokers see this client, for messages.

        Raises:
            TransportError: no broker answers, or all refuse this client's login.
        """
        self._servers, self._principal = servers, principal
        try:
            self._client = KafkaAdminClient(
                **settings, max_in_flight_requests_per_connection=_WINDOW
            )
        except (KafkaError, OSError) as error:
            raise self._failed("no connection for administration", error) from None

    def fence(self, transactional_ids: Sequence[str], deadline: float) -> dict[str, int]:
        """Fence the producers of these ids. Return an error code by id, 0 if its producer is
        fenced. An id is missing if no answer came in time.

        Args:
            deadline: time on the monotonic clock, in seconds.

        Raises:
            TransportError: a coordinator could not be found or reached.
        """
        client = self._client
        found: dict[str, int] = {}

        async def fence() -> None:
            todo = list(dict.fromkeys(transactional_ids))
            while todo and time.monotonic() < deadline:
                todo = await _round(client, todo, found, deadline)
                if todo:
                    await client._net.sleep(_RETRY_S)

        try:
            client._manager.run(fence)
        except (KafkaError, OSError) as error:
            named = ", ".join(transactional_ids[:NAMED_MAX])
            if len(transactional_ids) > NAMED_MAX:
                named += f" and {len(transactional_ids) - NAMED_MAX} more"
            what = f"the producers of transactional ids {named} were not fenced"
            right = "Write (or at least Describe) on one of these TransactionalIds"
            raise self._failed(what, error, right) from None
        return found

    def refused_lookup(self, transactional_id: str) -> str | None:
        deadline = time.monotonic() + LOOKUP_MS / 1000

        async def look() -> None:
            await _coordinators(self._client, [transactional_id], deadline)

        try:
            self._client._manager.run(look)
        except AuthorizationError as error:
            return str(error)
        except (KafkaError, OSError) as error:
            what = f"the coordinator of transactional id {transactional_id!r} was not found"
            raise self._failed(what, error) from None
        return None

    def transaction_state(self, transactional_id: str) -> str | None:
        try:
            found = self._client.describe_transactions([transactional_id])
        except (KafkaError, OSError):
            return None
        return str(found[transactional_id].state.value)

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        what = f"offsets of group {group!r} could not be deleted"
        places = [Place(*each) for each in partitions]
        try:
            found = self._client.delete_group_offsets(group, places)
        except (KafkaError, OSError) as error:
            raise self._failed(what, error, f"Delete on Group:{group}") from None
        errors = {place: e.__name__ for place, e in found.items() if _is_error(e)}
        if errors:
            told = ", ".join(f"{k.topic}-{k.partition}: {name}" for k, name in errors.items())
            lost = next((k.topic for k in errors if issubclass(found[k], AuthorizationError)), None)
            if lost is not None:
                told += f"; {self._principal} lacks Read on Topic:{lost}"
            in_use = any(issubclass(found[place], _HAS_MEMBERS) for place in errors)
            kind = GroupInUseError if in_use else TransportError
            raise kind(f"{what} at {self._servers}: {told}")

    def close(self) -> None:
        self._client.close()

    def _failed(self, what: str, error: Exception, right: str = "") -> TransportError:
        """Make the error of a failed request.

        Args:
            right: the permission that the request needs, as operation and resource.
        """
        told = f"{type(error).__name__}: {error}"
        if right and isinstance(error, AuthorizationError):
            told += f"; {self._principal} lacks {right}"
        return TransportError(f"{what} at {self._servers}: {told}")


async def _coordinators(
    client: KafkaAdminClient, ids: Sequence[str], deadline: float
) -> Mapping[str, Any]:
    """Return the coordinator's node id by transactional id. It repeats the request while the
    brokers create the topic of transactions, which they do at the first such request."""
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
    """Send one request per id and put the results into `found`. Return the ids to repeat."""
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


def _is_error(result: Any) -> bool:
    return getattr(result, "errno", 0) != 0
