"""What a host performs a herder's effects with: one method for each kind of effect.

`headgate.host.work` makes the answer out of what a method returns, or out of its `TransportError`.
Where a method may return None, that says that the answer will be posted. The host's `HostSchedule`
chooses the thread that calls a method.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from headgate.herder import messages as m
from headgate.membership.messages import GroupRequest
from headgate.task.messages import TaskCommand, TaskSpec

ConfigRecords: TypeAlias = Sequence[tuple[str, bytes | None]]


class LogPorts(Protocol):
    """The two topics that a host writes."""

    def claim(self, generation: int) -> None:
        """Raises FencedError: a later leader has claimed the log."""
        ...

    def append(self, records: ConfigRecords, *, privileged: bool) -> int:
        """All records or none; the end of the log after them.

        Raises:
            FencedError: a later leader has claimed the log.
            TooLargeError: nothing was written, and never will be.
        """
        ...

    def read_to_end(self, token: int, *, statuses: bool) -> Sequence[m.Command]:
        """`ConfigRead` for all records before an end that is looked up now, then `ConfigEndRead`
        with `token`; its error says why that was not possible. None of them: they are posted.

        With `statuses` there is `StatusRead` before `ConfigEndRead`, for all records of the status
        topic before its end, which is looked up now, too."""
        ...

    def write_statuses(self, statuses: Sequence[m.WriteStatus]) -> None:
        """In this order. What cannot be written is tried again, unless a later status of the same
        key has come."""
        ...

    def await_statuses(self, token: int) -> Sequence[m.Command]:
        """`StatusesWritten` with `token` once all that was given to `write_statuses` is written.
        Nothing: it is posted."""
        ...


class HostPorts(LogPorts, Protocol):
    """All that effects need of the world."""

    def send_group(self, request: GroupRequest) -> None:
        """A request that is lost is made again by the herder. The response is posted."""
        ...

    def validate(self, name: str, config: Mapping[str, str | None]) -> tuple[str, ...]:
        """What is wrong with the config, in words; nothing when it is valid."""
        ...

    def start_connector(
        self, effect: m.StartConnector
    ) -> m.ConnectorStarted | m.ConnectorFailed | None: ...

    def generate_task_configs(
        self, effect: m.GenerateTaskConfigs
    ) -> m.TaskConfigsGenerated | None: ...

    def stop_connector(self, effect: m.StopConnector) -> m.ConnectorStopped | None: ...

    def start_task(self, spec: TaskSpec) -> None:
        """What becomes of it is posted: `TaskReported`, the last one `TaskReleased`."""
        ...

    def send_task(self, run: str, command: TaskCommand) -> None: ...

    def stop_task(self, run: str, grace_ms: int) -> None: ...

    def fence(self, connector: str, transactional_ids: Sequence[str]) -> None:
        """Raises ConfigProviderError: what the connector's config refers to cannot be had."""
        ...

    def read_offsets(self, effect: m.ReadConnectorOffsets) -> m.ConnectorOffsetsRead | None: ...

    def alter_offsets(
        self, effect: m.AlterConnectorOffsets
    ) -> m.ConnectorOffsetsAltered | None: ...

    def give_up_alteration(self, token: int) -> m.Failure | None:
        """None: it is being written, or was."""
        ...

    def make_session_key(self, key_size: int) -> tuple[bytes, int]:
        """A random key of `key_size` bits, and the wall time in milliseconds."""
        ...

    def set_logger_level(self, logger: str, level: str) -> None: ...

    def call_peer(self, url: str, token: int, call: m.Call, hops: int, ms: int) -> m.Result | None:
        """Raises TransportError: no answer within `ms`. The worker may still have acted."""
        ...

    def answer(self, call_id: str, result: m.Result) -> None: ...
