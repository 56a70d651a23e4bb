"""The client for asyncio. Its methods are those of `headgate_grpc.client.sync.Client`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import grpc
import grpc.aio

from headgate_grpc.client.address import (
    credentials,
    find_address,
    has_tls,
    options,
    target,
)
from headgate_grpc.client.errors import HeadgateError
from headgate_grpc.client.patience import AGAIN_S, TIMEOUT_S, Outage, wait_request
from headgate_grpc.client.watching import Change, Watching, WorkerChange, worker_changes
from headgate_grpc.v1 import cluster_service_pb2 as cluster_pb2
from headgate_grpc.v1 import connector_pb2, connector_service_pb2
from headgate_grpc.v1.cluster_service_pb2_grpc import ClusterServiceStub
from headgate_grpc.v1.connector_service_pb2_grpc import ConnectorServiceStub

A = TypeVar("A")


def connect_async(address: str | None = None, *, timeout_s: float = TIMEOUT_S) -> "AsyncClient":
    """Make a client of the API. It does not connect yet, so a missing server is an error of the
    first call.

    Args:
        address: ``grpc://host:port``, ``grpcs://host:port`` or ``unix:path``. None: HEADGATE_URL,
            or the `headgate up` of this folder.
        timeout_s: how long each call may take.

    Raises:
        LookupError: no address was given and none is found.
        ValueError: `address` is no such address, or a certificate file cannot be read.
        OSError: the folder of the Unix socket does not exist.
    """
    return AsyncClient(address or find_address(), timeout_s=timeout_s)


class AsyncClient:
    """The client, for one event loop. Its methods raise `HeadgateError`. The stubs `connectors` and
    `cluster` have all rpcs and options of the API, and raise `grpc.aio.AioRpcError`."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            environment: variables that name certificate files. None: the process's variables.
        """
        self._timeout_s = timeout_s
        with ExitStack() as stack:
            where = stack.enter_context(target(address))
            self._channel = (
                grpc.aio.secure_channel(where, credentials(environment), options=options(address))
                if has_tls(address)
                else grpc.aio.insecure_channel(where, options=options(address))
            )
            self._open = stack.pop_all()
        self.connectors = ConnectorServiceStub(self._channel)
        self.cluster = ClusterServiceStub(self._channel)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()
        self._open.close()

    async def _ask(
        self,
        method: Callable[..., Any],
        request: Any,
        kind: type[A],
        timeout_s: float | None = None,
    ) -> A:
        try:
            answer = await method(request, timeout=timeout_s or self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise HeadgateError.of(error, request) from error
        assert isinstance(answer, kind)
        return answer

    # -- what is there --

    async def list(
        self,
        *,
        prefix: str = "",
        names: Iterable[str] = (),
        states: Iterable[connector_pb2.State.ValueType] = (),
        view: connector_pb2.ConnectorView.ValueType = connector_pb2.CONNECTOR_VIEW_BASIC,
        min_config_offset: int = 0,
    ) -> AsyncIterator[connector_pb2.Connector]:
        """Yield connectors, sorted by name. They are fetched page by page.

        Args:
            min_config_offset: wait until the worker has read the config topic to this offset, which
                is in the answers to changes.
        """
        wanted = connector_pb2.ConnectorFilter(prefix=prefix, names=names, states=states)
        token = ""
        while True:
            page = await self._ask(
                self.connectors.ListConnectors,
                connector_service_pb2.ListConnectorsRequest(
                    filter=wanted,
                    view=view,
                    page_token=token,
                    min_config_offset=min_config_offset,
                ),
                connector_service_pb2.ListConnectorsResponse,
            )
            for each in page.connectors:
                yield each
            token = page.next_page_token
            if not token:
                return

    async def get(
        self,
        name: str,
        view: connector_pb2.ConnectorView.ValueType = connector_pb2.CONNECTOR_VIEW_BASIC,
        min_config_offset: int = 0,
    ) -> connector_pb2.Connector:
        request = connector_service_pb2.GetConnectorRequest(
            name=name, view=view, min_config_offset=min_config_offset
        )
        kind = connector_service_pb2.GetConnectorResponse
        return (await self._ask(self.connectors.GetConnector, request, kind)).connector

    async def watch(
        self,
        *,
        prefix: str = "",
        names: Iterable[str] = (),
        states: Iterable[connector_pb2.State.ValueType] = (),
        view: connector_pb2.ConnectorView.ValueType = connector_pb2.CONNECTOR_VIEW_BASIC,
        give_up_after_s: float = TIMEOUT_S,
    ) -> AsyncIterator[Change]:
        """Yield all connectors that match, then each change, without an end.

        A stream that breaks off is resumed. States in between may be missed, but never the last
        state of a connector.

        Raises:
            HeadgateError: the stream was refused, or could not be resumed for `give_up_after_s`.
        """
        wanted = connector_pb2.ConnectorFilter(prefix=prefix, names=names, states=states)
        watching, outage = Watching(), Outage(give_up_after_s)
        while True:
            request = connector_service_pb2.WatchConnectorsRequest(
                filter=wanted, view=view, cursor=watching.cursor
            )
            stream = self.connectors.WatchConnectors(request)
            try:
                async for response in stream:
                    outage.over()
                    for change in watching.changes(response):
                        yield change
            except grpc.aio.AioRpcError as error:
                outage.broke_off(error)
            finally:
                stream.cancel()
            await asyncio.sleep(AGAIN_S)

    async def wait(
        self,
        name: str,
        *,
        state: connector_pb2.State.ValueType | None = None,
        deleted: bool = False,
        stop_at_failure: bool = True,
        min_config_offset: int = 0,
        timeout_s: float | None = None,
    ) -> connector_pb2.Connector:
        """Wait until the connector is settled, or is in `state`, or is `deleted`. Return it, or a
        connector without a name if it is deleted.

        A server ends a call after 90 s at the latest. The call is repeated until `timeout_s` is
        over.
        """
        request = wait_request(
            name,
            state,
            deleted=deleted,
            stop_at_failure=stop_at_failure,
            min_config_offset=min_config_offset,
        )
        kind = connector_service_pb2.WaitConnectorResponse
        until = time.monotonic() + (timeout_s or self._timeout_s)
        while True:
            left_s = max(until - time.monotonic(), 0.001)
            try:
                answer = await self._ask(self.connectors.WaitConnector, request, kind, left_s)
            except HeadgateError as error:
                if not error.ended_early(until - time.monotonic()):
                    raise
            else:
                return answer.connector

    async def plan(
        self,
        connectors: Iterable[connector_service_pb2.PlannedConnector],
        prune: connector_pb2.ConnectorFilter | None = None,
    ) -> connector_service_pb2.PlanConnectorsResponse:
        """Return what would happen if these connectors were created or changed, and all others that
        match `prune` were deleted. Nothing is written."""
        return await self._ask(
            self.connectors.PlanConnectors,
            connector_service_pb2.PlanConnectorsRequest(connectors=connectors, prune=prune),
            connector_service_pb2.PlanConnectorsResponse,
        )

    # -- changes --

    async def create(
        self,
        name: str,
        config: Mapping[str, str],
        initial_state: connector_pb2.TargetState.ValueType = connector_pb2.TARGET_STATE_STARTED,
    ) -> connector_pb2.Connector:
        request = connector_service_pb2.CreateConnectorRequest(
            name=name, config=config, initial_state=initial_state
        )
        kind = connector_service_pb2.CreateConnectorResponse
        return (await self._ask(self.connectors.CreateConnector, request, kind)).connector

    async def put_config(
        self, name: str, config: Mapping[str, str], *, etag: str = ""
    ) -> connector_service_pb2.PutConnectorConfigResponse:
        """Change a connector's config, or create the connector if it does not exist.

        Args:
            etag: change the connector only if it still has this etag, from an earlier read.
                Otherwise the error has the reason ETAG_MISMATCH. Other changes take it too.
        """
        return await self._ask(
            self.connectors.PutConnectorConfig,
            connector_service_pb2.PutConnectorConfigRequest(name=name, config=config, etag=etag),
            connector_service_pb2.PutConnectorConfigResponse,
        )

    async def patch_config(
        self,
        name: str,
        change: Mapping[str, str],
        remove: Iterable[str] = (),
        *,
        etag: str = "",
    ) -> connector_pb2.Connector:
        request = connector_service_pb2.PatchConnectorConfigRequest(
            name=name, set=change, remove=remove, etag=etag
        )
        kind = connector_service_pb2.PatchConnectorConfigResponse
        return (await self._ask(self.connectors.PatchConnectorConfig, request, kind)).connector

    async def delete(
        self, name: str, *, etag: str = ""
    ) -> connector_service_pb2.DeleteConnectorResponse:
        request = connector_service_pb2.DeleteConnectorRequest(name=name, etag=etag)
        kind = connector_service_pb2.DeleteConnectorResponse
        return await self._ask(self.connectors.DeleteConnector, request, kind)

    async def pause(
        self, name: str, *, etag: str = ""
    ) -> connector_service_pb2.PauseConnectorResponse:
        request = connector_service_pb2.PauseConnectorRequest(name=name, etag=etag)
        kind = connector_service_pb2.PauseConnectorResponse
        return await self._ask(self.connectors.PauseConnector, request, kind)

    async def resume(
        self, name: str, *, etag: str = ""
    ) -> connector_service_pb2.ResumeConnectorResponse:
        request = connector_service_pb2.ResumeConnectorRequest(name=name, etag=etag)
        kind = connector_service_pb2.ResumeConnectorResponse
        return await self._ask(self.connectors.ResumeConnector, request, kind)

    async def stop(
        self, name: str, *, etag: str = ""
    ) -> connector_service_pb2.StopConnectorResponse:
        request = connector_service_pb2.StopConnectorRequest(name=name, etag=etag)
        kind = connector_service_pb2.StopConnectorResponse
        return await self._ask(self.connectors.StopConnector, request, kind)

    async def restart(
        self, name: str, *, include_tasks: bool = False, only_failed: bool = False
    ) -> connector_pb2.Connector:
        """Restart a connector. Return the plan of the restart. It is empty without one of the
        flags."""
        request = connector_service_pb2.RestartConnectorRequest(
            name=name, include_tasks=include_tasks, only_failed=only_failed
        )
        kind = connector_service_pb2.RestartConnectorResponse
        return (await self._ask(self.connectors.RestartConnector, request, kind)).plan

    async def restart_task(self, name: str, task: int) -> None:
        request = connector_service_pb2.RestartTaskRequest(name=name, task=task)
        kind = connector_service_pb2.RestartTaskResponse
        await self._ask(self.connectors.RestartTask, request, kind)

    # -- offsets --

    async def read_offsets(self, name: str) -> Sequence[connector_pb2.ConnectorOffset]:
        request = connector_service_pb2.ReadOffsetsRequest(name=name)
        kind = connector_service_pb2.ReadOffsetsResponse
        return [*(await self._ask(self.connectors.ReadOffsets, request, kind)).offsets]

    async def alter_offsets(
        self,
        name: str,
        offsets: Iterable[connector_pb2.ConnectorOffset],
        *,
        etag: str = "",
    ) -> str:
        """Change offsets and return Connect's message. Partitions that are not named keep their
        offsets."""
        request = connector_service_pb2.AlterOffsetsRequest(name=name, offsets=offsets, etag=etag)
        kind = connector_service_pb2.AlterOffsetsResponse
        return (await self._ask(self.connectors.AlterOffsets, request, kind)).message

    async def reset_offsets(self, name: str, *, etag: str = "") -> str:
        """Reset all offsets and return Connect's message."""
        request = connector_service_pb2.ResetOffsetsRequest(name=name, etag=etag)
        kind = connector_service_pb2.ResetOffsetsResponse
        return (await self._ask(self.connectors.ResetOffsets, request, kind)).message

    async def read_deleted_offsets(
        self, name: str, type_: connector_pb2.ConnectorType.ValueType
    ) -> Sequence[connector_pb2.ConnectorOffset]:
        """Return the offsets that a deleted connector has left."""
        request = connector_service_pb2.ReadDeletedOffsetsRequest(name=name, type=type_)
        kind = connector_service_pb2.ReadDeletedOffsetsResponse
        return [*(await self._ask(self.connectors.ReadDeletedOffsets, request, kind)).offsets]

    async def reset_deleted_offsets(
        self, name: str, type_: connector_pb2.ConnectorType.ValueType
    ) -> str:
        """Reset the offsets that a deleted connector has left. Return a message for the user."""
        request = connector_service_pb2.ResetDeletedOffsetsRequest(name=name, type=type_)
        kind = connector_service_pb2.ResetDeletedOffsetsResponse
        return (await self._ask(self.connectors.ResetDeletedOffsets, request, kind)).message

    # -- the cluster --

    async def get_cluster(self) -> cluster_pb2.Cluster:
        request = cluster_pb2.GetClusterRequest()
        kind = cluster_pb2.GetClusterResponse
        return (await self._ask(self.cluster.GetCluster, request, kind)).cluster

    async def watch_cluster(self) -> AsyncIterator[WorkerChange]:
        """Yield all workers, then each one that changes, without an end.

        Raises:
            HeadgateError: the stream was refused, or has broken off. It is not resumed.
        """
        known: dict[str, cluster_pb2.Worker] = {}
        stream = self.cluster.WatchCluster(cluster_pb2.WatchClusterRequest())
        try:
            async for response in stream:
                for change in worker_changes(response, known):
                    yield change
        except grpc.aio.AioRpcError as error:
            raise HeadgateError.of(error, reads=True) from error
        finally:
            stream.cancel()
