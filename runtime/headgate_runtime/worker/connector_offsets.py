"""Offsets of a connector as users read, alter and reset them. Source: KIP-875, Worker.

The herder has made sure that nobody else is at work on the connector's offsets. Here they are read
and written, and the connector's class is asked. All runs on a thread: the class may take its time,
and an open transaction makes every reader wait.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from headgate.connector.api import OffsetReader, SinkConnector, SourceConnector
from headgate.connector.config import ConfigError
from headgate.connector.config_providers import ConfigProviderError
from headgate.connector.sink_names import sink_group
from headgate.herder.messages import (
    AlterConnectorOffsets,
    ConnectorOffsetsAltered,
    ConnectorOffsetsRead,
    ErrorKind,
    Failure,
    OffsetChange,
    ReadConnectorOffsets,
)
from headgate.herder.offset_previews import NOTHING_LEFT
from headgate.ports import (
    FencedError,
    GroupInUseError,
    KeyedLog,
    TopicPartition,
    TransportError,
    UnknownTopicError,
)
from headgate.task.messages import TaskKind
from headgate.topics.config_events import Config
from headgate.topics.offsets import (
    Offset,
    OffsetFormatError,
    Partition,
    plan_alteration,
    plan_reset,
)
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.config.transformer import (
    NO_PROVIDERS,
    ResolvedConfig,
    WorkerConfigTransformer,
)
from headgate_runtime.plugins.find import PluginError, find_connector
from headgate_runtime.tasks import long_calls
from headgate_runtime.tasks.offsets import SourceOffsets
from headgate_runtime.transports.select import TaskTransport, open_task_transport

log = logging.getLogger(__name__)

_Asked = TypeVar("_Asked", ReadConnectorOffsets, AlterConnectorOffsets)
_Done = TypeVar("_Done", ConnectorOffsetsRead, ConnectorOffsetsAltered)

TOPIC: Final = "kafka_topic"
PARTITION: Final = "kafka_partition"
OFFSET: Final = "kafka_offset"
OVERTAKEN: Final = (
    "Offsets of connector {} were left as they are: while they were to be written another worker "
    "became leader, or the connector was given tasks. Look at its offsets, and try again"
)
GROUP_IN_USE: Final = (
    "Failed to {what} consumer group offsets for connector {connector} either because its tasks "
    "haven't stopped completely yet or the connector was resumed before the request to {what} its "
    "offsets could be successfully completed. If the connector is in a stopped state, this "
    "operation can be safely retried. If it doesn't eventually succeed, the Connect cluster may "
    "need to be restarted to get rid of the zombie sink tasks."
)
"""Connect's words, by which clients recognise that they may try again."""
GIVEN_UP: Final = (
    "Offsets of connector {} were left as they are: its class came back from alter_offsets only "
    "when the request's time was over"
)


class ConnectorOffsets:
    """Performs `ReadConnectorOffsets` and `AlterConnectorOffsets`. Safe for several threads."""

    def __init__(
        self,
        transport: Mapping[str, str],
        settings: WorkerSettings,
        still_ours: Callable[[AlterConnectorOffsets], bool],
        transformer: WorkerConfigTransformer = NO_PROVIDERS,
    ) -> None:
        """
        Args:
            transport: settings with which tasks reach the log.
            still_ours: returns whether this worker leads now, and no tasks of the connector were
                given out since the effect was decided.
            transformer: resolves references in configs.
        """
        self._still_ours = still_ours
        self._transformer = transformer
        self._transport = transport
        self._settings = settings
        self._exactly_once = settings["exactly.once.source.support"] == "enabled"
        self._lock = threading.Lock()
        self._asked: set[int] = set()
        """Tokens of alterations whose write has not begun."""

    def reader(self, connector: str, config: Mapping[str, str], shared: KeyedLog) -> OffsetReader:
        """Return the reader with which a connector's instance reads its source offsets. They may be
        in a topic of its own. Source: KIP-618, `ConnectorContext.offsetStorageReader`.

        Args:
            config: the connector's config, with references resolved.
            shared: the workers' offset log.
        """
        elsewhere = (
            config.get("offsets.storage.topic"),
            config.get("producer.override.bootstrap.servers"),
            self._transport.get("producer.bootstrap.servers"),
        )
        if any(elsewhere):
            return _OffsetsElsewhere(
                lambda: self._opened(connector, config, TaskKind.SOURCE), connector
            )
        return SourceOffsets(shared, connector)

    def read(self, effect: ReadConnectorOffsets) -> ConnectorOffsetsRead:
        return self._with_values(effect, self._read, ConnectorOffsetsRead, "retrieve offsets")

    def _read(self, effect: ReadConnectorOffsets) -> ConnectorOffsetsRead:
        try:
            with self._opened(effect.connector, effect.config, effect.kind) as transport:
                if effect.kind is TaskKind.SINK:
                    _check_there(transport, effect.connector, _places(effect.offsets))
                    found = self._reached(transport, effect.connector, effect.config)
                    return ConnectorOffsetsRead(effect.token, tuple(map(_plain, found.items())))
                view = transport.offset_view()
        except _NoPartitionError as error:
            failure = Failure(ErrorKind.BAD_REQUEST, str(error))
            return ConnectorOffsetsRead(effect.token, failure=failure)
        except (TransportError, _RefusedError) as error:
            text = f"Failed to retrieve offsets of connector {effect.connector}: {error}"
            return ConnectorOffsetsRead(effect.token, failure=Failure(ErrorKind.INTERNAL, text))
        lines = view.partitions(effect.connector)
        for line in lines:
            if line.problem is not None:
                log.warning(
                    "source offset of %s at %s: %s", effect.connector, line.partition, line.problem
                )
        return ConnectorOffsetsRead(
            effect.token, tuple((line.partition, line.offset) for line in lines)
        )

    def expect(self, token: int) -> None:
        """Announce that `alter` will be called with this token. Until it writes, the alteration can
        be given up."""
        with self._lock:
            self._asked.add(token)

    def give_up(self, token: int) -> bool:
        """Give up an alteration. Return whether nothing of it is written, now or later."""
        return self._no_longer_asked(token)

    def _no_longer_asked(self, token: int) -> bool:
        """Withdraw a token. Return whether it was still there: of the writer and the caller of
        `give_up`, the first gets True."""
        with self._lock:
            asked = token in self._asked
            self._asked.discard(token)
        return asked

    def alter(self, effect: AlterConnectorOffsets) -> ConnectorOffsetsAltered:
        """Alter offsets once, after `expect` was called with the effect's token."""
        try:
            return self._with_values(effect, self._alter, ConnectorOffsetsAltered, "change offsets")
        finally:
            self._no_longer_asked(effect.token)

    def _with_values(
        self, effect: _Asked, perform: Callable[[_Asked], _Done], done: type[_Done], what: str
    ) -> _Done:
        """Perform an effect on the config with references resolved. A failure shows none of their
        values."""
        connector = effect.connector
        try:
            resolved = self._transformer.resolve(effect.config, f"connector {connector}")
        except ConfigProviderError as error:
            text = f"Failed to {what} of connector {connector}: {error}"
            return done(effect.token, failure=Failure(ErrorKind.INTERNAL, text))
        answer = perform(replace(effect, config=resolved.config))
        return replace(answer, failure=_hidden(answer.failure, resolved))

    def _alter(self, effect: AlterConnectorOffsets) -> ConnectorOffsetsAltered:
        alter = self._alter_sink if effect.kind is TaskKind.SINK else self._alter_source
        try:
            with self._opened(effect.connector, effect.config, effect.kind) as transport:
                handled = alter(transport, effect)
        except _OvertakenError as overtaken:
            failure = Failure(ErrorKind.CONFLICT, str(overtaken))
            return ConnectorOffsetsAltered(effect.token, failure=failure)
        except _NothingLeftError as nothing:
            failure = Failure(ErrorKind.NOT_FOUND, str(nothing))
            return ConnectorOffsetsAltered(effect.token, failure=failure)
        except _RefusedError as refusal:
            failure = Failure(ErrorKind.INTERNAL, str(refusal))
            return ConnectorOffsetsAltered(effect.token, failure=failure)
        except (OffsetFormatError, _NoPartitionError) as error:
            failure = Failure(ErrorKind.BAD_REQUEST, str(error))
            return ConnectorOffsetsAltered(effect.token, failure=failure)
        except (TransportError, FencedError) as error:
            what = "reset" if effect.offsets is None else "alter"
            text = f"Failed to {what} offsets of connector {effect.connector}: {error}"
            return ConnectorOffsetsAltered(effect.token, failure=Failure(ErrorKind.INTERNAL, text))
        return ConnectorOffsetsAltered(effect.token, handled)

    @contextlib.contextmanager
    def _opened(self, connector: str, config: Config, kind: TaskKind) -> Iterator[TaskTransport]:
        transport = open_task_transport(
            self._transport,
            {key: value for key, value in config.items() if value is not None},
            connector=connector,
            kind=kind.value,
            exactly_once=self._exactly_once,
        )
        try:
            yield transport
        finally:
            transport.close()

    # -- sources --

    def _alter_source(self, transport: TaskTransport, effect: AlterConnectorOffsets) -> bool:
        view = transport.offset_view()
        if effect.offsets is None:
            writes = plan_reset(view, effect.connector)
            changes: Sequence[OffsetChange] = [
                (line.partition, None) for line in view.partitions(effect.connector)
            ]
            if not writes.primary and not writes.shared_tombstones:
                _check_left(effect, changes)
                return self._asked_source(effect, changes)
        else:
            changes = list(effect.offsets)
            writes = plan_alteration(
                view, effect.connector, cast(Sequence[tuple[Partition, Offset]], changes)
            )
        handled = self._asked_source(effect, changes)
        # The transport takes care of the order of the topics and of the copies.
        records = (*writes.shared_tombstones, *writes.primary)
        if effect.transactional_id is None:
            self._begin_writing(effect)
            transport.offset_log.append(records)
            return handled
        membership = (self._settings["group.id"], effect.member_id, effect.generation)
        producer = transport.record_log.producer(
            f"connector-producer-{effect.connector}-0", effect.transactional_id, membership
        )
        try:
            producer.init()
            # This is a recheck like a task's: this thread may have been frozen while others took
            # over, and Kafka gives the producer to the last caller. A later caller shuts this
            # producer out.
            self._begin_writing(effect)
            producer.commit(records)
        finally:
            producer.close()
        return handled

    def _begin_writing(self, effect: AlterConnectorOffsets) -> None:
        """Check that the alteration is still this worker's and still waited for. After that it is
        written to its end.

        Raises:
            _OvertakenError: it is not; nothing was written.
        """
        self._check_ours(effect)
        if not self._no_longer_asked(effect.token):
            text = GIVEN_UP.format(effect.connector)
            log.warning("%s", text)
            raise _OvertakenError(text)

    def _check_ours(self, effect: AlterConnectorOffsets) -> None:
        if not self._still_ours(effect):
            raise _OvertakenError(OVERTAKEN.format(effect.connector))

    def _asked_source(self, effect: AlterConnectorOffsets, changes: Sequence[OffsetChange]) -> bool:
        if effect.deleted:
            return True
        connector = _class_of(effect)
        if not issubclass(connector, SourceConnector):
            raise _RefusedError(f"{connector.__name__} is no source connector")
        given = cast("Sequence[tuple[Partition, Mapping[str, Any] | None]]", changes)
        with _refusals(effect.connector), long_calls.call("alter_offsets"):
            return bool(connector.alter_offsets(_texts(effect.config), given))

    # -- sinks --

    def _group(self, connector: str, config: Config) -> str:
        return sink_group(connector, config, self._transport)

    def _sink_offsets(
        self, transport: TaskTransport, connector: str, config: Config
    ) -> Mapping[TopicPartition, int]:
        found = transport.record_log.committed(self._group(connector, config))
        return dict(sorted(found.items()))

    def _reached(
        self, transport: TaskTransport, connector: str, config: Config
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets that the sink has reached, as its class says. If the class is not
        found, return the committed offsets."""
        committed = self._sink_offsets(transport, connector, config)
        try:
            sink = find_connector(config.get("connector.class") or "")
        except PluginError:
            return committed
        if not issubclass(sink, SinkConnector):
            return committed
        with _refusals(connector), long_calls.call("reached_offsets"):
            return dict(sorted(sink.reached_offsets(_texts(config), committed).items()))

    def _alter_sink(self, transport: TaskTransport, effect: AlterConnectorOffsets) -> bool:
        changes: dict[TopicPartition, int | None] = {}
        if effect.offsets is None:
            changes = dict.fromkeys(self._reached(transport, effect.connector, effect.config))
        changes.update(_places(effect.offsets or ()))
        _check_left(effect, [*changes.items()])
        _check_there(transport, effect.connector, changes)
        handled = self._asked_sink(effect, changes)
        self._begin_writing(effect)
        if effect.offsets is None:
            # Offsets that only the class knows of are not in the group, so nothing has to be
            # deleted.
            changes = dict.fromkeys(self._sink_offsets(transport, effect.connector, effect.config))
        if changes:
            group = self._group(effect.connector, effect.config)
            try:
                transport.record_log.commit_unguarded(group, changes)
            except GroupInUseError as error:
                what = "reset" if effect.offsets is None else "alter"
                text = GROUP_IN_USE.format(what=what, connector=effect.connector)
                raise _RefusedError(f"{text} ({error})") from error
            except TransportError as error:
                raise _RefusedError(
                    f"Failed to alter consumer group offsets for connector {effect.connector}: "
                    f"{error}"
                ) from error
        return handled

    def _asked_sink(
        self, effect: AlterConnectorOffsets, changes: Mapping[TopicPartition, int | None]
    ) -> bool:
        if effect.deleted:
            return True
        connector = _class_of(effect)
        if not issubclass(connector, SinkConnector):
            raise _RefusedError(f"{connector.__name__} is no sink connector")
        self._check_ours(effect)
        with _refusals(effect.connector), long_calls.call("alter_offsets"):
            return bool(connector.alter_offsets(_texts(effect.config), changes))


class _OffsetsElsewhere:
    """Source offsets in another topic. The transport is opened for each question, because connector
    instances seldom ask. So there is nothing to close when an instance is abandoned."""

    def __init__(
        self, opened: Callable[[], contextlib.AbstractContextManager[TaskTransport]], connector: str
    ) -> None:
        self._opened = opened
        self._connector = connector

    def offset(self, partition: Partition) -> Mapping[str, Any] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Iterable[Partition]) -> list[Mapping[str, Any] | None]:
        with self._opened() as transport:
            return SourceOffsets(transport.offset_log, self._connector).offsets(partitions)

    def committed(self) -> Sequence[tuple[Partition, Mapping[str, Any]]]:
        with self._opened() as transport:
            return SourceOffsets(transport.offset_log, self._connector).committed()


class _OvertakenError(Exception):
    """Nothing was written: another worker leads, tasks were given out, or the request's time was
    over."""


class _NoPartitionError(Exception):
    """A change gives an offset to a topic partition that does not exist. Nothing was asked or
    written."""


class _NothingLeftError(Exception):
    """A deleted connector has left no offsets that could be reset."""


class _RefusedError(Exception):
    """A refusal with the text that the user reads."""


@contextlib.contextmanager
def _refusals(connector: str) -> Iterator[None]:
    """Translate what a connector's own code raises into `_RefusedError`, for the user."""
    try:
        yield
    except NotImplementedError:  # a connector that refuses (KIP-875)
        raise _RefusedError(
            f"Failed to modify offsets for connector {connector} because it doesn't support "
            "external modification of offsets"
        ) from None
    except ConfigError as error:
        # This is a refusal and no fault of the connector's. The caller reads all of it in the
        # answer.
        text = " ".join(str(error).split())
        log.warning("alter_offsets of connector %s refused: %s", connector, text)
        raise _RefusedError(str(error)) from error
    except Exception as error:
        log.exception("alter_offsets of connector %s", connector)
        raise _RefusedError(str(error) or type(error).__name__) from error


def _check_left(effect: AlterConnectorOffsets, changes: Sequence[object]) -> None:
    if effect.deleted and not changes:
        text = NOTHING_LEFT.format(kind=effect.kind.value, name=effect.connector)
        raise _NothingLeftError(text)


def _places(changes: Iterable[OffsetChange]) -> dict[TopicPartition, int | None]:
    """Return the changes of a sink's offsets, which were checked before, by topic partition."""
    found: dict[TopicPartition, int | None] = {}
    for partition, offset in changes:
        place, at = cast("dict[str, Any]", partition), cast("dict[str, Any] | None", offset)
        key = (str(place[TOPIC]), int(place[PARTITION]))
        found[key] = None if at is None else int(at[OFFSET])
    return found


def _check_there(
    transport: TaskTransport, connector: str, changes: Mapping[TopicPartition, int | None]
) -> None:
    """Check that the partitions which get an offset exist. A partition whose offset is deleted may
    be gone. The check comes before the connector's class is asked, which may write.

    Raises:
        _NoPartitionError: a partition that gets an offset does not exist.
    """
    head = f"Failed to alter consumer group offsets for connector {connector}: the log has no"
    for topic in sorted({topic for (topic, _), offset in changes.items() if offset is not None}):
        try:
            count = transport.record_log.partitions(topic)
        except UnknownTopicError:
            text = f"{head} topic {topic}; look how it is spelled, or create it first"
            raise _NoPartitionError(text) from None
        for (of, number), offset in changes.items():
            if of == topic and number >= count and offset is not None:
                has = "only partition 0" if count == 1 else f"partitions 0 to {count - 1}"
                text = f"{head} partition {topic}-{number}; {topic} has {has}"
                raise _NoPartitionError(text)


def _hidden(failure: Failure | None, resolved: ResolvedConfig) -> Failure | None:
    if failure is None or not resolved.found:
        return failure
    return replace(failure, message=resolved.hide(failure.message))


def _class_of(effect: AlterConnectorOffsets) -> type:
    try:
        return find_connector(effect.config.get("connector.class") or "")
    except PluginError as error:
        raise _RefusedError(str(error)) from error


def _texts(config: Config) -> Mapping[str, str]:
    return {key: value for key, value in config.items() if value is not None}


def _plain(item: tuple[TopicPartition, int]) -> OffsetChange:
    (topic, partition), offset = item
    return {TOPIC: topic, PARTITION: partition}, {OFFSET: offset}
