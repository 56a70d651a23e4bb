"""Administrative requests that librdkafka's clients do not have."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.ports import TopicPartition, TransportError
from headgate_kafka.login.principal import of_kafka_python

if TYPE_CHECKING:
    from headgate_kafka.admin.raw_client import RawClient

FENCE_MS: Final = 90_000
"""How long Connect's leader waits for the fencing of producers."""
_REASONS: Final = {
    49: "the producer id is not that of the transactional id",
    50: "the broker's transaction.max.timeout.ms is below 60 s",
}
_NO_RIGHT: Final = 53


class RawAdmin:
    """A client of kafka-python, made when first needed. Safe from several threads.

    The library is also imported only then. Hardly any task needs it, and it costs each new
    interpreter 150 ms and 8 MiB.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self.servers = ",".join(settings.get("bootstrap_servers", ()))
        self.principal = of_kafka_python(settings)
        self._mutex = threading.Lock()
        self._client: RawClient | None = None

    def fence(self, transactional_ids: Sequence[str], timeout_ms: int) -> dict[str, int]:
        """Fence the producers of these ids. Return an error code by id, 0 if its producer is
        fenced. An id is missing if no answer came in time."""
        deadline = time.monotonic() + timeout_ms / 1000
        with self._mutex:
            return self._made().fence(transactional_ids, deadline)

    def refused_lookup(self, transactional_id: str) -> str | None:
        """Return why this principal may not find the coordinator of the id. None: it may."""
        with self._mutex:
            return self._made().refused_lookup(transactional_id)

    def refused_init(self, transactional_id: str) -> str | None:
        """Return why this principal may not initialise a producer with the id. None: it may, and
        the id's earlier producer is now fenced."""
        refused = self.refused_lookup(transactional_id)
        if refused is not None:
            return refused
        code = self.fence([transactional_id], FENCE_MS).get(transactional_id)
        if code is None:
            return f"no answer within {FENCE_MS} ms"
        return None if code == 0 else self.reason(code, transactional_id)

    def reason(self, code: int, transactional_id: str) -> str:
        """Return a text with a broker's error code and its likely cause."""
        known = _REASONS.get(code)
        if code == _NO_RIGHT:
            known = f"{self.principal} lacks Write on TransactionalId:{transactional_id}"
        return f"error {code} ({known})" if known else f"error {code}"

    def transaction_state(self, transactional_id: str) -> str | None:
        """Return the coordinator's name of the state, such as ``Ongoing``. None: it cannot be
        had."""
        with self._mutex:
            try:
                return self._made().transaction_state(transactional_id)
            except TransportError:
                return None

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        with self._mutex:
            self._made().delete_offsets(group, partitions)

    def close(self) -> None:
        with self._mutex:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _made(self) -> "RawClient":
        if self._client is None:
            try:
                from headgate_kafka.admin.raw_client import RawClient
            except OSError as error:
                what = f"kafka-python, which {self.servers} is asked with, cannot be loaded"
                raise TransportError(f"{what}: {error}") from None
            self._client = RawClient(self._settings, self.servers, self.principal)
        return self._client
