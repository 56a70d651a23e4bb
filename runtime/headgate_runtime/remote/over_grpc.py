"""A cluster over the gRPC API."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headgate.ids import TargetState
from headgate.task.messages import TaskKind
from headgate_grpc.client import Client, HeadgateError
from headgate_grpc.messages import STATE_NAMES, STATES, TARGETS, TYPES
from headgate_grpc.v1 import cluster_service_pb2 as cluster_pb2
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as service_pb2
from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.remote.listener import WAIT, unreached
from headgate_runtime.remote.remote import (
    CallRow,
    Config,
    ConnectorRow,
    Difference,
    LateError,
    Plan,
    PlannedRow,
    RefusedError,
    RemoteError,
    TaskRow,
    Work,
)
from headgate_runtime.remote.remote import refused as refused_text

_TYPE_NAMES: Final = {number: name for name, number in TYPES.items()}
_TARGET_NAMES: Final = {number: name for name, number in TARGETS.items()}
CALL_S: Final = 90.0


def _batch(found: cluster_pb2.TaskBatch) -> dict[str, Any]:
    return {
        "task": found.task,
        "number": found.number,
        "records": found.records,
        "files": found.files,
        "took_ms": found.took_ms,
        "next_ms": found.next_ms,
    }


def _call(found: cluster_pb2.LongCall) -> dict[str, Any]:
    # An older worker reports only the task.
    connector = found.connector or found.task.rpartition("-")[0]
    task = {"task": found.task, "connector": connector}
    return {**task, "method": found.method, "took_ms": found.took_ms}


class GrpcRemote:
    def __init__(self, address: str, variables: Mapping[str, str] | None = None) -> None:
        """Connect to `address`, with the files of certificates in `variables`, or in the
        environment if it is None."""
        self.where = address
        try:
            self._client = Client(address, timeout_s=CALL_S, environment=variables)
        except ValueError as error:
            raise RemoteError(str(error), EXIT_USAGE) from None
        except OSError as error:
            raise RemoteError(
                f"{address} cannot be reached: {error.strerror}\n  next: is the cluster up?"
            ) from None

    def close(self) -> None:
        self._client.close()

    def cluster(self) -> Mapping[str, Any]:
        with self._told():
            found = self._client.get_cluster()
        workers = [
            {
                "worker_id": each.worker_id,
                "url": each.url,
                "answers": each.answers,
                "member": each.member,
                "leader": each.leader,
                "generation": each.generation,
                "settled": each.settled,
                "pending": list(each.pending),
                "connectors": list(each.connectors),
                "tasks": list(each.tasks),
                "connector_count": each.connector_count or len(each.connectors),
                "task_count": each.task_count or len(each.tasks),
                "set_aside": [
                    {"task": one.task, "inputs": list(one.inputs), "more": one.more}
                    for one in each.set_aside
                ],
                "batches": [_batch(one) for one in each.batches],
                "long_calls": [_call(one) for one in each.long_calls],
                "unknown": each.unknown,
            }
            for each in found.workers
        ]
        return {
            "version": found.version,
            "kafka_cluster_id": found.kafka_cluster_id,
            "group_id": found.group_id,
            "workers": workers,
            "others_unknown": found.others_unknown,
        }

    def work(
        self, cluster: Mapping[str, Any], rows: Sequence[ConnectorRow], *, of_rows: bool = False
    ) -> Work:
        workers = cluster["workers"]
        return Work(
            [batch for worker in workers for batch in worker["batches"]],
            [call for worker in workers for call in worker["long_calls"]],
            {each["worker_id"]: each["unknown"] for each in workers if each["unknown"]},
        )

    def rows(self, prefix: str = "", states: Sequence[str] = ()) -> Sequence[ConnectorRow]:
        wanted = [STATES[state] for state in states]
        with self._told():
            return [_row(each) for each in self._client.list(prefix=prefix, states=wanted)]

    def row(self, name: str) -> ConnectorRow:
        with self._told(name):
            return _row(self._client.get(name, connector_pb2.CONNECTOR_VIEW_FULL))

    def create(self, name: str, config: Config, state: TargetState | None) -> None:
        texts, nulls = _split(config)
        request = service_pb2.CreateConnectorRequest(
            name=name,
            config=texts,
            config_null_keys=nulls,
            initial_state=connector_pb2.TARGET_STATE_UNSPECIFIED
            if state is None
            else TARGETS[state.value],
        )
        with self._told(name):
            self._client.connectors.CreateConnector(request, timeout=CALL_S)

    def put_config(self, name: str, config: Config, etag: str = "") -> bool:
        texts, nulls = _split(config)
        request = service_pb2.PutConnectorConfigRequest(
            name=name, config=texts, config_null_keys=nulls, etag=etag
        )
        with self._told(name):
            answer = self._client.connectors.PutConnectorConfig(request, timeout=CALL_S)
        return bool(answer.created)

    def patch_config(self, name: str, changes: Config) -> None:
        texts, gone = _split(changes)
        with self._told(name):
            self._client.patch_config(name, texts, gone)

    def plan(self, wanted: Mapping[str, Config], prune: str | None) -> Plan:
        connectors = []
        for name, config in wanted.items():
            texts, nulls = _split(config)
            connectors.append(
                service_pb2.PlannedConnector(name=name, config=texts, config_null_keys=nulls)
            )
        others = None if prune is None else connector_pb2.ConnectorFilter(prefix=prune)
        with self._told():
            found = self._client.plan(connectors, others)
        moves = [
            (
                f"{each.connector}-{each.task}" if each.HasField("task") else each.connector,
                each.from_worker,
                each.to_worker,
            )
            for each in found.moves
        ]
        rows = tuple(map(_planned, found.changes))
        return Plan(rows, tuple(moves), found.move_count, found.moves_unknown)

    def notes(self, wanted: Mapping[str, Config]) -> Sequence[tuple[str, str, str]]:
        rows = self.plan(wanted, None).rows
        return [(row.name, key, text) for row in rows for key, text in row.notes]

    def delete(self, name: str) -> None:
        with self._told(name):
            self._client.delete(name)

    def set_target_state(self, name: str, state: TargetState) -> None:
        ways = {
            TargetState.PAUSED: self._client.pause,
            TargetState.STARTED: self._client.resume,
            TargetState.STOPPED: self._client.stop,
        }
        with self._told(name):
            ways[state](name)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
        with self._told(name):
            self._client.restart(name, include_tasks=include_tasks, only_failed=only_failed)

    def restart_task(self, name: str, task: int) -> None:
        with self._told(name):
            self._client.restart_task(name, task)

    def offsets(self, name: str) -> Sequence[Mapping[str, Any]]:
        with self._told(name):
            return _shown_offsets(self._client.read_offsets(name))

    def alter_offsets(self, name: str, changes: Sequence[tuple[object, object]]) -> str:
        with self._told(name):
            return self._client.alter_offsets(name, _offsets(changes))

    def offset_differences(
        self, name: str, changes: Sequence[tuple[object, object]] | None
    ) -> Sequence[Mapping[str, Any]]:
        client = self._client.connectors
        answer: service_pb2.AlterOffsetsResponse | service_pb2.ResetOffsetsResponse
        with self._told(name, reads=True):
            if changes is None:
                reset = service_pb2.ResetOffsetsRequest(name=name, dry_run=True)
                answer = client.ResetOffsets(reset, timeout=CALL_S)
            else:
                alter = service_pb2.AlterOffsetsRequest(
                    name=name, offsets=_offsets(changes), dry_run=True
                )
                answer = client.AlterOffsets(alter, timeout=CALL_S)
        return _shown_differences(answer.differences)

    def reset_offsets(self, name: str) -> str:
        with self._told(name):
            return self._client.reset_offsets(name)

    def deleted_offsets(self, name: str, kind: TaskKind) -> Sequence[Mapping[str, Any]]:
        with self._told(name):
            return _shown_offsets(self._client.read_deleted_offsets(name, TYPES[kind.value]))

    def reset_deleted_offsets(self, name: str, kind: TaskKind) -> str:
        with self._told(name):
            return self._client.reset_deleted_offsets(name, TYPES[kind.value])

    def deleted_offset_differences(self, name: str, kind: TaskKind) -> Sequence[Mapping[str, Any]]:
        request = service_pb2.ResetDeletedOffsetsRequest(
            name=name, type=TYPES[kind.value], dry_run=True
        )
        with self._told(name, reads=True):
            answer = self._client.connectors.ResetDeletedOffsets(request, timeout=CALL_S)
        return _shown_differences(answer.differences)

    def plugins(self) -> Sequence[Mapping[str, Any]]:
        with self._told(reads=True):
            found = self._client.cluster.ListPlugins(
                cluster_pb2.ListPluginsRequest(), timeout=CALL_S
            )
        return [
            {"class": each.class_name, "type": each.type, "version": each.version}
            for each in found.plugins
        ]

    def plugin(self, name: str) -> Sequence[Mapping[str, Any]]:
        with self._told(reads=True):
            found = self._client.cluster.GetPlugin(
                cluster_pb2.GetPluginRequest(class_name=name), timeout=CALL_S
            )
        return [
            {
                "name": key.name,
                "type": key.type,
                "required": key.required,
                "default_value": key.default_value if key.HasField("default_value") else None,
                "importance": key.importance,
                "documentation": key.documentation,
                "group": key.group,
                "display_name": key.display_name,
                "dependents": list(key.dependents),
            }
            for key in found.keys
        ]

    def loggers(self) -> Mapping[str, str]:
        with self._told(reads=True):
            found = self._client.cluster.ListLoggers(
                cluster_pb2.ListLoggersRequest(), timeout=CALL_S
            )
        return {each.name: each.level for each in found.loggers}

    def set_level(self, logger: str, level: str, *, cluster: bool) -> Sequence[str]:
        request = cluster_pb2.SetLoggerLevelRequest(logger=logger, level=level, cluster=cluster)
        with self._told():
            return list(self._client.cluster.SetLoggerLevel(request, timeout=CALL_S).loggers)

    def watch(self, prefix: str, names: Sequence[str]) -> Iterator[tuple[str, ConnectorRow | None]]:
        with self._told():
            for change in self._client.watch(prefix=prefix, names=names):
                found = change.connector
                yield change.name, None if found is None else _with_calls(_row(found), found)

    def wait(self, name: str, condition: str, timeout_s: float) -> ConnectorRow | None:
        state = STATES.get(condition)
        with self._told(name):
            found = self._client.wait(
                name,
                state=state,
                deleted=condition == "deleted",
                stop_at_failure=condition != "FAILED",
                timeout_s=timeout_s,
            )
        return _row(found) if found.name else None

    @contextlib.contextmanager
    def _told(self, name: str = "", *, reads: bool = False) -> Iterator[None]:
        """Translate errors of gRPC into messages for the user. `reads`: the calls of the client's
        stubs change nothing."""
        import grpc

        try:
            yield
        except grpc.RpcError as error:
            raise self._error(HeadgateError.of(error, reads=reads), name) from None
        except HeadgateError as error:
            raise self._error(error, name) from None
        except UnicodeEncodeError:
            raise RemoteError(
                "a name or a value is not UTF-8\n  next: check how it was typed", EXIT_USAGE
            ) from None

    def _error(self, error: HeadgateError, name: str) -> RemoteError:
        show = f"headgate connectors show {name}"
        if error.reason == "STILL_WAITING":
            return LateError(f"{error.message}\n  next: {show}")
        if error.reason == "CONNECTOR_FAILED":
            again = f"headgate connectors restart {name} --tasks --only-failed"
            return RefusedError(f"{error.message}\n  next: {show} has the trace; then {again}")
        if error.not_sent:
            return unreached(self.where, error.message)
        if error.broke_off:
            lost = f"{self.where} has not answered: {error.message.rstrip('.')}"
            if not error.may_have_been_done:
                return RemoteError(f"{lost}. Nothing was to be changed\n  next: {WAIT}")
            look = show if name else "headgate status"
            return RemoteError(
                f"{lost}. The request was sent: it may have been done, or not\n"
                f"  next: look with {look} before you ask again"
            )
        return refused_text(error.code, error.message, name, error.reason, self.where)


def _shown_offsets(
    found: Sequence[connector_pb2.ConnectorOffset],
) -> Sequence[Mapping[str, Any]]:
    return [
        {"partition": json.loads(each.partition_json), "offset": json.loads(each.offset_json)}
        for each in found
    ]


def _shown_differences(
    found: Sequence[service_pb2.OffsetDifference],
) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "partition": json.loads(each.partition_json),
            "before": json.loads(each.before_json or "null"),
            "after": json.loads(each.after_json or "null"),
        }
        for each in found
    ]


def _offsets(changes: Sequence[tuple[object, object]]) -> list[connector_pb2.ConnectorOffset]:
    return [
        connector_pb2.ConnectorOffset(
            partition_json=json.dumps(partition),
            offset_json="" if offset is None else json.dumps(offset),
        )
        for partition, offset in changes
    ]


def _split(config: Config) -> tuple[dict[str, str], list[str]]:
    texts = {key: value for key, value in config.items() if value is not None}
    return texts, [key for key, value in config.items() if value is None]


def _planned(found: service_pb2.PlannedChange) -> PlannedRow:
    action = service_pb2.PlannedAction.Name(found.action).removeprefix("PLANNED_ACTION_")
    return PlannedRow(
        name=found.name,
        action=action.lower().replace("_", " "),
        differences=tuple(
            Difference(
                each.key,
                each.before if each.HasField("before") else None,
                each.after if each.HasField("after") else None,
                each.hidden,
                each.is_before,
                each.is_after,
            )
            for each in found.differences
        ),
        faults=tuple((each.key, each.message) for each in found.faults),
        notes=tuple((each.key, each.message) for each in found.notes),
        state_after=_TARGET_NAMES.get(found.target_state_after, ""),
    )


def _with_calls(row: ConnectorRow, found: connector_pb2.Connector) -> ConnectorRow:
    calls = tuple(
        CallRow(
            each.task if each.HasField("task") else None,
            each.method,
            each.since_ms,
            each.worker_id,
        )
        for each in found.hanging_calls
    )
    return replace(row, hanging_calls=calls, hanging_calls_more=found.hanging_calls_more)


def _row(found: connector_pb2.Connector) -> ConnectorRow:
    config: dict[str, str | None] = dict(found.config)
    config.update(dict.fromkeys(found.config_null_keys))
    return ConnectorRow(
        name=found.name,
        type=_TYPE_NAMES.get(found.type, "unknown"),
        state=STATE_NAMES.get(found.status.state, ""),
        target_state=_TARGET_NAMES.get(found.target_state, ""),
        settled=found.settled,
        worker=found.status.worker_id,
        trace=found.status.trace,
        tasks=tuple(
            TaskRow(
                each.number,
                STATE_NAMES.get(each.status.state, ""),
                each.status.worker_id,
                each.status.trace,
            )
            for each in found.tasks
        ),
        config=config,
        task_configs=tuple(
            {**each.config, **dict.fromkeys(each.config_null_keys)} for each in found.tasks
        ),
        topics=tuple(found.topics),
        etag=found.etag,
    )
