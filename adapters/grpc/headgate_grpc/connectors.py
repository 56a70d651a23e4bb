"""The methods of ``headgate.v1.ConnectorService``."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, cast

from headgate.herder import messages as m
from headgate.herder.settled import THE_CONNECTOR
from headgate.ids import TargetState, TaskId
from headgate.task.messages import TaskKind
from headgate_grpc import messages, planning
from headgate_grpc.asked import Asked
from headgate_grpc.errors import (
    CONNECTOR_FAILED,
    MEANINGS,
    STILL_WAITING,
    RefusedError,
    bad_request,
)
from headgate_grpc.listed import Listed
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb
from headgate_grpc.watch import Filter, Hub

PAGE_SIZE: Final = 1_000
PAGE_SIZE_MAX: Final = 10_000
PAGE_BYTES_MAX: Final = 3 * 1024 * 1024
_PARTS: Final = {
    connector_pb2.CONNECTOR_VIEW_UNSPECIFIED: ("config",),
    connector_pb2.CONNECTOR_VIEW_STATUS: (),
    connector_pb2.CONNECTOR_VIEW_BASIC: ("config",),
    connector_pb2.CONNECTOR_VIEW_FULL: ("config", "tasks", "topics"),
}


class ConnectorService:
    """The service. Each method answers the rpc of its name, or raises `RefusedError`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._listed = Listed()

    # -- reading --

    async def list_connectors(
        self, request: pb.ListConnectorsRequest, asked: Asked
    ) -> pb.ListConnectorsResponse:
        if not 0 <= request.page_size <= PAGE_SIZE_MAX:
            raise bad_request(f"page_size is {request.page_size}; expected 0 to {PAGE_SIZE_MAX}")
        wanted = request.filter
        call = m.ShowConnectors(
            names=tuple(wanted.names),
            prefix=wanted.prefix,
            states=messages.states_of(wanted.states),
            after=request.page_token,
            limit=request.page_size or PAGE_SIZE,
            parts=_parts(request.view),
            min_config_offset=messages.min_config_offset_of(request),
        )
        found = await asked.value(call)
        self._listed.asked()
        more, size = found["more"], 0
        shown: list[bytes] = []
        for row in found["rows"]:
            one = self._listed.shown(row)
            size += len(one)
            if size > PAGE_BYTES_MAX and shown:
                more = True
                break
            shown.append(one)
        # Concatenated messages are one message, in which repeated fields are concatenated too.
        response = pb.ListConnectorsResponse.FromString(b"".join(shown))
        response.config_offset = found["config_offset"]
        if more and shown:
            response.next_page_token = response.connectors[-1].name
        return response

    async def get_connector(
        self, request: pb.GetConnectorRequest, asked: Asked
    ) -> pb.GetConnectorResponse:
        name = messages.name_of(request)
        least = messages.min_config_offset_of(request)
        found = await asked.value(m.ShowConnector(name, _parts(request.view), least))
        return pb.GetConnectorResponse(
            connector=messages.connector(found["row"]), config_offset=found["config_offset"]
        )

    def watch_connectors(
        self, request: pb.WatchConnectorsRequest, asked: Asked
    ) -> AsyncGenerator[pb.WatchConnectorsResponse]:
        if request.view == connector_pb2.CONNECTOR_VIEW_FULL:
            raise bad_request("view is CONNECTOR_VIEW_FULL; a watch has STATUS or BASIC")
        with_config = "config" in _parts(request.view)
        wanted = Filter.of(request.filter)
        return self._hub.watch(wanted, request.cursor, with_config=with_config)

    async def wait_connector(
        self, request: pb.WaitConnectorRequest, asked: Asked
    ) -> pb.WaitConnectorResponse:
        name = messages.name_of(request)
        holds, words = _condition(request)
        last: list[connector_pb2.Connector] = []
        try:
            async with asyncio.timeout(asked.left_s()):
                return await self._until(request, asked, holds, last)
        except TimeoutError:
            shown = _in_words(last[-1]) if last else "not seen yet"
            raise RefusedError(
                STILL_WAITING, f"Connector {name} is not {words} yet: {shown}"
            ) from None

    async def _until(
        self,
        request: pb.WaitConnectorRequest,
        asked: Asked,
        holds: Callable[[connector_pb2.Connector], bool],
        last: list[connector_pb2.Connector],
    ) -> pb.WaitConnectorResponse:
        """Wait until `holds` is true of the connector, and return it.

        A watch tells when to look again. Its rows may be older than a change that was answered
        before this wait began, so each look asks the herder. The first look reads the config topic
        to its end, because another worker may have made the change.
        """
        least, to_end = messages.min_config_offset_of(request), True
        stream = self._hub.watch(Filter(names=frozenset((request.name,))), fresh=False)
        try:
            async for response in stream:
                if not (response.connectors or response.removed or response.synced):
                    continue
                call = m.ShowConnector(request.name, ("config", "outdated"), least, to_end)
                result, to_end = await asked.result(call), False
                if isinstance(result, m.Failure):
                    if result.kind is m.ErrorKind.NOT_FOUND and request.deleted:
                        return pb.WaitConnectorResponse()
                    raise RefusedError.of(result)
                row = cast(Any, result.value)["row"]
                shown, outdated = messages.connector(row), row["outdated"]
                last[:] = [shown]
                if holds(shown) and not (outdated and request.WhichOneof("condition") == "state"):
                    return pb.WaitConnectorResponse(connector=shown)
                if request.stop_at_failure and not request.deleted:
                    current = _current(shown, outdated)
                    if _failed(current):
                        raise RefusedError(CONNECTOR_FAILED, _failure_text(current))
        finally:
            await cast(Any, stream).aclose()
        raise AssertionError("a watch has no end")

    async def plan_connectors(
        self, request: pb.PlanConnectorsRequest, asked: Asked
    ) -> pb.PlanConnectorsResponse:
        return await planning.plan(request, asked)

    # -- changes --

    async def create_connector(
        self, request: pb.CreateConnectorRequest, asked: Asked
    ) -> pb.CreateConnectorResponse:
        name = request.name.strip(messages.JAVA_SPACES)
        config = messages.config_of(request.config, request.config_null_keys)
        state = messages.TARGET_STATES.get(request.initial_state)
        if state is None and request.initial_state != 0:
            raise bad_request(f"initial_state is {request.initial_state}, which is no TargetState")
        messages.check_class(config)
        done = await _changed(asked, m.CreateConnector(name, config, state), config)
        shown = messages.changed_connector(done)
        shown.target_state = messages.TARGETS[state or TargetState.STARTED]
        return pb.CreateConnectorResponse(connector=shown, config_offset=done.config_offset or 0)

    async def put_connector_config(
        self, request: pb.PutConnectorConfigRequest, asked: Asked
    ) -> pb.PutConnectorConfigResponse:
        config = messages.config_of(request.config, request.config_null_keys)
        name, etag = messages.name_of(request), messages.etag_of(request)
        messages.check_class(config)
        done = await _changed(asked, m.PutConnectorConfig(name, config, etag), config)
        return pb.PutConnectorConfigResponse(
            connector=messages.changed_connector(done),
            created=cast(Any, done.value).get("created", False),
            config_offset=done.config_offset or 0,
        )

    async def patch_connector_config(
        self, request: pb.PatchConnectorConfigRequest, asked: Asked
    ) -> pb.PatchConnectorConfigResponse:
        changes = messages.config_of(request.set, request.remove, "set")
        name, etag = messages.name_of(request), messages.etag_of(request)
        if "connector.class" in changes:
            messages.check_class(changes)
        done = await _changed(asked, m.PatchConnectorConfig(name, changes, etag), changes)
        return pb.PatchConnectorConfigResponse(
            connector=messages.changed_connector(done), config_offset=done.config_offset or 0
        )

    async def delete_connector(
        self, request: pb.DeleteConnectorRequest, asked: Asked
    ) -> pb.DeleteConnectorResponse:
        call = m.DeleteConnector(messages.name_of(request), messages.etag_of(request))
        done = await asked.success(call)
        return pb.DeleteConnectorResponse(config_offset=done.config_offset or 0)

    async def pause_connector(
        self, request: pb.PauseConnectorRequest, asked: Asked
    ) -> pb.PauseConnectorResponse:
        offset, etag = await _target_state_set(request, asked, TargetState.PAUSED)
        return pb.PauseConnectorResponse(config_offset=offset, etag=etag)

    async def resume_connector(
        self, request: pb.ResumeConnectorRequest, asked: Asked
    ) -> pb.ResumeConnectorResponse:
        offset, etag = await _target_state_set(request, asked, TargetState.STARTED)
        return pb.ResumeConnectorResponse(config_offset=offset, etag=etag)

    async def stop_connector(
        self, request: pb.StopConnectorRequest, asked: Asked
    ) -> pb.StopConnectorResponse:
        offset, etag = await _target_state_set(request, asked, TargetState.STOPPED)
        return pb.StopConnectorResponse(config_offset=offset, etag=etag)

    async def restart_connector(
        self, request: pb.RestartConnectorRequest, asked: Asked
    ) -> pb.RestartConnectorResponse:
        name = messages.name_of(request)
        call = m.RestartConnector(name, request.include_tasks, request.only_failed)
        value = await asked.value(call)
        if not call.by_record:
            return pb.RestartConnectorResponse()
        return pb.RestartConnectorResponse(plan=messages.plan(value))

    async def restart_task(
        self, request: pb.RestartTaskRequest, asked: Asked
    ) -> pb.RestartTaskResponse:
        await asked.value(m.RestartTask(TaskId(messages.name_of(request), request.task)))
        return pb.RestartTaskResponse()

    # -- offsets and topics --

    async def read_offsets(
        self, request: pb.ReadOffsetsRequest, asked: Asked
    ) -> pb.ReadOffsetsResponse:
        body = await asked.value(m.ReadOffsets(messages.name_of(request)))
        return pb.ReadOffsetsResponse(offsets=messages.offsets(body))

    async def alter_offsets(
        self, request: pb.AlterOffsetsRequest, asked: Asked
    ) -> pb.AlterOffsetsResponse:
        changes = messages.offset_changes(request.offsets)
        name, etag = messages.name_of(request), messages.etag_of(request)
        body = await asked.value(m.AlterOffsets(name, changes, etag, request.dry_run))
        return pb.AlterOffsetsResponse(
            message=messages.text(body["message"]), differences=messages.offset_differences(body)
        )

    async def reset_offsets(
        self, request: pb.ResetOffsetsRequest, asked: Asked
    ) -> pb.ResetOffsetsResponse:
        name, etag = messages.name_of(request), messages.etag_of(request)
        body = await asked.value(m.ResetOffsets(name, etag, request.dry_run))
        return pb.ResetOffsetsResponse(
            message=messages.text(body["message"]), differences=messages.offset_differences(body)
        )

    async def read_deleted_offsets(
        self, request: pb.ReadDeletedOffsetsRequest, asked: Asked
    ) -> pb.ReadDeletedOffsetsResponse:
        call = m.ReadDeletedOffsets(messages.name_of(request), _kind_of(request.type))
        return pb.ReadDeletedOffsetsResponse(offsets=messages.offsets(await asked.value(call)))

    async def reset_deleted_offsets(
        self, request: pb.ResetDeletedOffsetsRequest, asked: Asked
    ) -> pb.ResetDeletedOffsetsResponse:
        kind = _kind_of(request.type)
        call = m.ResetDeletedOffsets(messages.name_of(request), kind, request.dry_run)
        body = await asked.value(call)
        return pb.ResetDeletedOffsetsResponse(
            message=messages.text(body["message"]), differences=messages.offset_differences(body)
        )

    async def reset_topics(
        self, request: pb.ResetTopicsRequest, asked: Asked
    ) -> pb.ResetTopicsResponse:
        await asked.value(m.ResetTopics(messages.name_of(request)))
        return pb.ResetTopicsResponse()


def _parts(view: connector_pb2.ConnectorView.ValueType) -> tuple[str, ...]:
    if view not in _PARTS:
        raise bad_request(f"view is {view}, which is no ConnectorView")
    return _PARTS[view]


def _kind_of(given: connector_pb2.ConnectorType.ValueType) -> TaskKind:
    for word, number in messages.TYPES.items():
        if number == given:
            return TaskKind(word)
    raise bad_request("type is not given; set CONNECTOR_TYPE_SOURCE or CONNECTOR_TYPE_SINK")


async def _target_state_set(request: Any, asked: Asked, state: TargetState) -> tuple[int, str]:
    """Set a target state. Return the config offset and the etag after the change."""
    name, etag = messages.name_of(request), messages.etag_of(request)
    done = await asked.success(m.SetTargetState(name, state, etag))
    return done.config_offset or 0, messages.text(done.etag)


async def _changed(asked: Asked, call: m.Call, config: Mapping[str, str | None]) -> m.Success:
    """Return the herder's answer to a create or a change of a config.

    Raises:
        RefusedError: the answer is a `Failure`. Secrets of `config` are hidden in its text.
    """
    result = await asked.result(call)
    if isinstance(result, m.Failure):
        message = messages.without_secrets(result.message, config)
        raise RefusedError(MEANINGS[result.kind], message)
    return result


# -- conditions --


def _condition(
    request: pb.WaitConnectorRequest,
) -> tuple[Callable[[connector_pb2.Connector], bool], str]:
    """Return a test whether a connector fulfils the request's condition, and the condition in
    words."""
    match request.WhichOneof("condition"):
        case "settled" if request.settled:
            return (lambda shown: shown.settled), "as it was asked for"
        case "deleted" if request.deleted:
            return (lambda shown: False), "deleted"
        case "state":
            (word,) = messages.states_of((request.state,))
            return (lambda shown: _all_in(shown, request.state)), word
        case _:
            raise bad_request("no condition is given; set settled, state or deleted")


def _all_in(shown: connector_pb2.Connector, state: int) -> bool:
    """Return whether a connector and all its tasks are in `state`. A connector without tasks only
    counts once it is settled, because its tasks may not be configured yet."""
    if shown.target_state != connector_pb2.TARGET_STATE_STOPPED and not shown.tasks:
        return shown.settled and shown.status.state == state
    return shown.status.state == state and all(task.status.state == state for task in shown.tasks)


def _current(shown: connector_pb2.Connector, outdated: Sequence[int]) -> connector_pb2.Connector:
    """Return the connector without the statuses that are older than the last change or restart."""
    if not outdated:
        return shown
    made = connector_pb2.Connector()
    made.CopyFrom(shown)
    if THE_CONNECTOR in outdated:
        made.ClearField("status")
    for task in made.tasks:
        if task.number in outdated:
            task.ClearField("status")
    return made


def _failed(shown: connector_pb2.Connector) -> bool:
    """Return whether the connector or a task has failed. One whose target state is STOPPED counts
    as not failed, since its tasks are removed in any case."""
    if shown.target_state == connector_pb2.TARGET_STATE_STOPPED:
        return False
    failed = connector_pb2.STATE_FAILED
    return shown.status.state == failed or any(task.status.state == failed for task in shown.tasks)


def _failure_text(shown: connector_pb2.Connector) -> str:
    failed = connector_pb2.STATE_FAILED
    where, status = f"Connector {shown.name}", shown.status
    if status.state != failed:
        task = next(task for task in shown.tasks if task.status.state == failed)
        where, status = f"Task {shown.name}-{task.number}", task.status
    lines = [line.strip() for line in status.trace.splitlines() if line.strip()]
    if not lines:
        return f"{where} has failed"
    # The message is in the last line of a Python trace, and in the first line of a Java trace.
    return f"{where} has failed: {lines[-1 if lines[0].startswith('Traceback') else 0]}"


def _in_words(shown: connector_pb2.Connector) -> str:
    """Return a text such as ``connector RUNNING, tasks: 1 FAILED, 2 RUNNING``."""
    counts: dict[str, int] = {}
    for task in shown.tasks:
        word = messages.STATE_NAMES.get(task.status.state, "without a status")
        counts[word] = counts.get(word, 0) + 1
    connector = messages.STATE_NAMES.get(shown.status.state, "without a status")
    tasks = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return f"connector {connector}, tasks: {tasks or 'none'}"
