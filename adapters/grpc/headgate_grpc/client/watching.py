"""What a stream of WatchConnectors says, as changes. The same for both kinds of client."""

from dataclasses import dataclass

from headgate_grpc.v1 import cluster_service_pb2, connector_pb2
from headgate_grpc.v1.cluster_service_pb2 import WatchClusterResponse
from headgate_grpc.v1.connector_service_pb2 import WatchConnectorsResponse


@dataclass(frozen=True, slots=True)
class Change:
    """A connector as it is now."""

    name: str
    connector: connector_pb2.Connector | None
    """None: it is deleted, or does not match any more."""


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """A worker as it is now."""

    worker_id: str
    worker: cluster_service_pb2.Worker | None
    """None: it is gone."""


def worker_changes(
    response: WatchClusterResponse, known: dict[str, cluster_service_pb2.Worker]
) -> list[WorkerChange]:
    """What is new by a response of WatchCluster. `known`: what was told before, and is kept up to
    date here."""
    if response.reset:
        known.clear()
    found = [WorkerChange(each.worker_id, each) for each in response.workers]
    known.update({each.worker_id: each for each in response.workers})
    gone = [each for each in response.removed_worker_ids if known.pop(each, None) is not None]
    return [*found, *(WorkerChange(worker_id, None) for worker_id in gone)]


class Watching:
    """Follows responses, over several streams. What exists is in `connectors`, by name."""

    def __init__(self) -> None:
        self.connectors: dict[str, connector_pb2.Connector] = {}
        self.cursor = ""
        """Where the next stream goes on."""
        self._stale: set[str] | None = None
        """While all is being told again: names that were not told yet."""

    def changes(self, response: WatchConnectorsResponse) -> list[Change]:
        """What is new by this response."""
        found: list[Change] = []
        if response.reset:
            self._stale = set(self.connectors)
        for connector in response.connectors:
            if self._stale is not None:
                self._stale.discard(connector.name)
            if self.connectors.get(connector.name) != connector:
                self.connectors[connector.name] = connector
                found.append(Change(connector.name, connector))
        gone = list(response.removed)
        if response.synced and self._stale is not None:
            gone += sorted(self._stale)
            self._stale = None
        known = [name for name in gone if self.connectors.pop(name, None) is not None]
        found.extend(Change(name, None) for name in known)
        # A cursor counts once all before it was told.
        self.cursor = "" if self._stale is not None else response.cursor or self.cursor
        return found
