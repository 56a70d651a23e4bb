"""Ports through which a host performs a herder's effects: one method for each kind of effect.

`headgate.host.work` makes the answer from the method's result or its `TransportError`. Where a
method may return None, None means that the answer will be posted. The host's `HostSchedule` chooses
the thread that calls a method.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from headgate.herder import messages as m
from headgate.membership.messages import GroupRequest
from headgate.task.messages import TaskCommand, TaskSpec

ConfigRecords: TypeAlias = Sequence[tuple[str, bytes | None]]


class LogPorts(Protocol):
    """What a host does with the config topic and the status topic: claim, write, read."""

    def claim(self, generation: int) -> None:
        """Claim the config topic. Raises FencedError if a later leader has claimed it."""
        ...

    def append(self, records: ConfigRecords, *, privileged: bool) -> int:
        """Append all records or none; return the end of the log after them.

        Raises:
            FencedError: A later leader has claimed the log.
            TooLargeError: A record is too large. Nothing was written, and trying again will not
                help.
        """
        ...

    def read_to_end(self, token: int, *, statuses: bool) -> Sequence[m.Command]:
        """Read the config topic to an end that is looked up now.

        Return `ConfigRead` for all records before that end, then `ConfigEndRead` with `token`,
        whose error says why that was not possible. Return nothing if these are posted instead.

        With `statuses`, also read the status topic to an end that is looked up now. Its records
        come as `StatusRead` before `ConfigEndRead`.
        """
        ...

    def write_statuses(self, statuses: Sequence[m.WriteStatus]) -> None:
        """Write statuses in this order. A status that cannot be written is tried again, unless a
        later status of the same key has come."""
        ...

    def await_statuses(self, token: int) -> Sequence[m.Command]:
        """Return `StatusesWritten` with `token` once everything passed to `write_statuses` is
        written. Return nothing if it is posted instead."""
        ...


class HostPorts(LogPorts, Protocol):
    """Everything that effects need from the world."""

    def send_group(self, request: GroupRequest) -> None:
        """Send a request. The herder repeats a request that is lost; the response is posted."""
        ...

    def validate(self, name: str, config: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return the errors of the config as texts; empty if the config is valid."""
        ...

    def start_connector(
        self, effect: m.StartConnector
    ) -> m.ConnectorStarted | m.ConnectorFailed | None: ...

    def generate_task_configs(
        self, effect: m.GenerateTaskConfigs
    ) -> m.TaskConfigsGenerated | None: ...

    def stop_connector(self, effect: m.StopConnector) -> m.ConnectorStopped | None: ...

    def start_task(self, spec: TaskSpec) -> None:
        """Start a task. Reports are posted as `TaskReported`; the last one is `TaskReleased`."""
        ...

    def send_task(self, run: str, command: TaskCommand) -> None: ...

    def stop_task(self, run: str, grace_ms: int) -> None: ...

    def fence(self, connector: str, transactional_ids: Sequence[str]) -> None:
        """Fence producers. Raises ConfigProviderError if a reference in the connector's config
        cannot be resolved."""
        ...

    def read_offsets(self, effect: m.ReadConnectorOffsets) -> m.ConnectorOffsetsRead | None: ...

    def alter_offsets(
        self, effect: m.AlterConnectorOffsets
    ) -> m.ConnectorOffsetsAltered | None: ...

    def give_up_alteration(self, token: int) -> m.Failure | None:
        """Give up an alteration of offsets. Return the failure that answers it, or None if the
        alteration is being written or was written."""
        ...

    def make_session_key(self, key_size: int) -> tuple[bytes, int]:
        """Return a random key of `key_size` bits, and the wall-clock time in milliseconds."""
        ...

    def set_logger_level(self, logger: str, level: str) -> None: ...

    def call_peer(self, url: str, token: int, call: m.Call, hops: int, ms: int) -> m.Result | None:
        """Call another worker. Raises TransportError if no answer comes within `ms`; the worker may
        still have acted."""
        ...

    def answer(self, call_id: str, result: m.Result) -> None: ...
