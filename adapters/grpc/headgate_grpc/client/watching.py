"""Translation of the responses of a watch into changes, for both kinds of client."""

from dataclasses import dataclass

from headgate_grpc.v1 import cluster_service_pb2, connector_pb2
from headgate_grpc.v1.cluster_service_pb2 import WatchClusterResponse
from headgate_grpc.v1.connector_service_pb2 import WatchConnectorsResponse


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a connector, with its current state."""

    name: str
    connector: connector_pb2.Connector | None
    """The connector. None: it is deleted, or does not match any more."""


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """A change of a worker, with its current state."""

    worker_id: str
    worker: cluster_service_pb2.Worker | None
    """The worker. None: it is gone."""


def worker_changes(
    response: WatchClusterResponse, known: dict[str, cluster_service_pb2.Worker]
) -> list[WorkerChange]:
    """Return the changes in a response of WatchCluster.

    Args:
        known: the workers known before. It is updated.
    """
    if response.reset:
        known.clear()
    found = [WorkerChange(each.worker_id, each) for each in response.workers]
    known.update({each.worker_id: each for each in response.workers})
    gone = [each for each in response.removed_worker_ids if known.pop(each, None) is not None]
    return [*found, *(WorkerChange(worker_id, None) for worker_id in gone)]


class Watching:
    """The state of one watch, over several streams. `connectors` has all connectors by name."""

    def __init__(self) -> None:
        self.connectors: dict[str, connector_pb2.Connector] = {}
        self.cursor = ""
        """Cursor from which the next stream resumes."""
        self._stale: set[str] | None = None
        """After a reset, until `synced`: names of connectors that the new stream has not sent."""

    def changes(self, response: WatchConnectorsResponse) -> list[Change]:
        """Return the changes in a response."""
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
        # A cursor is only valid once the stream has sent all rows before it.
        self.cursor = "" if self._stale is not None else response.cursor or self.cursor
        return found
