"""Fencing of producers by their transactional ids. Source: KIP-618, `Admin.fenceProducers`."""

from collections.abc import Sequence

from headgate.ports import TransportError
from headgate_kafka.admin.raw_admin import FENCE_MS, RawAdmin


class KafkaFencer:
    def __init__(self, admin: RawAdmin, timeout_ms: int = FENCE_MS) -> None:
        self._admin = admin
        self._timeout_ms = timeout_ms

    def fence(self, transactional_ids: Sequence[str]) -> None:
        """Fence the producers that were initialised before under these ids.

        Raises:
            TransportError: not all are known to be fenced. To try again does no harm.
        """
        if not transactional_ids:
            return
        found = self._admin.fence(transactional_ids, self._timeout_ms)
        silent = [each for each in transactional_ids if each not in found]
        refused = {each: code for each, code in found.items() if code != 0}
        if not silent and not refused:
            return
        parts = [f"{each}: {self._admin.reason(code, each)}" for each, code in refused.items()]
        if silent:
            parts.append(f"no answer within {self._timeout_ms} ms for {', '.join(silent[:5])}")
        raise TransportError(
            f"{len(silent) + len(refused)} of {len(transactional_ids)} producers were not fenced "
            f"at {self._admin.servers}: {'; '.join(parts[:5])}"
        )
