"""Kafka Connect's control plane as a library: decisions without I/O, clock, threads or logging.

Fold a config topic into state, ask it for assignments and fencing, or drive a whole worker:

    state = fold(ConfigState(), events)                 # what the config topic says
    fencing_requirement(state, "orders", "my-group")    # what to shut out before tasks start
    POLICIES["kip415"](round_input, memory)             # which worker gets what
    Herder(settings, now_ms).handle(now_ms, command)    # one worker: commands in, effects out
    HerderHost(herder, ports, AtOnce(), clock)          # the loop around it

Everything here takes and returns plain data. The names below are public and stay; modules of this
package may move. `headgate.connector` has what authors of connectors need. See
docs/build/embedding.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.assignment import POLICIES
    from headgate.assignment.model import MemberAssignment, MemberWork, Policy, Round, RoundInput
    from headgate.errors import CoreError, IllegalTransitionError, LogOrderError
    from headgate.herder import messages
    from headgate.herder.herder import Herder
    from headgate.herder.settings import HerderSettings, Plugin
    from headgate.host.host import AtOnce, HerderHost, HostSchedule
    from headgate.host.ports import HostPorts
    from headgate.host.work import Work
    from headgate.ids import State, TargetState, TaskId
    from headgate.membership import member_messages
    from headgate.membership import messages as group_messages
    from headgate.membership.coordinator import Coordinator, CoordinatorSettings
    from headgate.membership.member import Member
    from headgate.membership.member_messages import MemberSettings, WorkView
    from headgate.ports import FencedError, LogRecord, TooLargeError, TransportError
    from headgate.task import messages as task_messages
    from headgate.topics.config_events import Config, ConfigEvent
    from headgate.topics.config_records import (
        decode,
        decode_all,
        encode_commit,
        encode_connector,
        encode_connector_tombstone,
        encode_logger_level,
        encode_restart,
        encode_session_key,
        encode_target_state,
        encode_target_state_tombstone,
        encode_task,
        encode_task_count,
    )
    from headgate.topics.config_reducer import fold
    from headgate.topics.config_state import ConfigState, ConnectorEntry
    from headgate.topics.fencing import (
        FenceTasks,
        FencingRequirement,
        NothingToFence,
        RecordTaskCount,
        fencing_requirement,
        may_start_source_tasks,
    )
    from headgate.topics.offsets import (
        OffsetTable,
        OffsetView,
        PartitionOffset,
        fold_offsets,
        plan_alteration,
        plan_reset,
    )
    from headgate.topics.status import Status, StatusEvent, StatusView, decode_status, fold_statuses

__version__ = "0.1.0"

__all__ = [
    "POLICIES",
    "AtOnce",
    "Config",
    "ConfigEvent",
    "ConfigState",
    "ConnectorEntry",
    "Coordinator",
    "CoordinatorSettings",
    "CoreError",
    "FenceTasks",
    "FencedError",
    "FencingRequirement",
    "Herder",
    "HerderHost",
    "HerderSettings",
    "HostPorts",
    "HostSchedule",
    "IllegalTransitionError",
    "LogOrderError",
    "LogRecord",
    "Member",
    "MemberAssignment",
    "MemberSettings",
    "MemberWork",
    "NothingToFence",
    "OffsetTable",
    "OffsetView",
    "PartitionOffset",
    "Plugin",
    "Policy",
    "RecordTaskCount",
    "Round",
    "RoundInput",
    "State",
    "Status",
    "StatusEvent",
    "StatusView",
    "TargetState",
    "TaskId",
    "TooLargeError",
    "TransportError",
    "Work",
    "WorkView",
    "__version__",
    "decode",
    "decode_all",
    "decode_status",
    "encode_commit",
    "encode_connector",
    "encode_connector_tombstone",
    "encode_logger_level",
    "encode_restart",
    "encode_session_key",
    "encode_target_state",
    "encode_target_state_tombstone",
    "encode_task",
    "encode_task_count",
    "fencing_requirement",
    "fold",
    "fold_offsets",
    "fold_statuses",
    "group_messages",
    "may_start_source_tasks",
    "member_messages",
    "messages",
    "plan_alteration",
    "plan_reset",
    "task_messages",
]

_HOMES: Final = {
    "headgate.assignment": "POLICIES",
    "headgate.assignment.model": "MemberAssignment MemberWork Policy Round RoundInput",
    "headgate.errors": "CoreError IllegalTransitionError LogOrderError",
    "headgate.herder.herder": "Herder",
    "headgate.herder.settings": "HerderSettings Plugin",
    "headgate.ids": "State TargetState TaskId",
    "headgate.membership.coordinator": "Coordinator CoordinatorSettings",
    "headgate.membership.member": "Member",
    "headgate.membership.member_messages": "MemberSettings WorkView",
    "headgate.host.host": "AtOnce HerderHost HostSchedule",
    "headgate.host.ports": "HostPorts",
    "headgate.host.work": "Work",
    "headgate.ports": "FencedError LogRecord TooLargeError TransportError",
    "headgate.topics.config_events": "Config ConfigEvent",
    "headgate.topics.config_records": (
        "decode decode_all encode_commit encode_connector encode_connector_tombstone "
        "encode_logger_level encode_restart encode_session_key encode_target_state "
        "encode_target_state_tombstone encode_task encode_task_count"
    ),
    "headgate.topics.config_reducer": "fold",
    "headgate.topics.config_state": "ConfigState ConnectorEntry",
    "headgate.topics.fencing": (
        "FenceTasks FencingRequirement NothingToFence RecordTaskCount fencing_requirement "
        "may_start_source_tasks"
    ),
    "headgate.topics.offsets": (
        "OffsetTable OffsetView PartitionOffset fold_offsets plan_alteration plan_reset"
    ),
    "headgate.topics.status": "Status StatusEvent StatusView decode_status fold_statuses",
}
"""Public names of each module, separated by spaces."""
_MODULES: Final = {
    "group_messages": "headgate.membership.messages",
    "member_messages": "headgate.membership.member_messages",
    "messages": "headgate.herder.messages",
    "task_messages": "headgate.task.messages",
}
"""Modules that are public as a whole: the messages of the group, the member, the herder and the
task."""
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # for a type checker, a name that is not listed above is an error

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used. Processes that run tasks import modules of
        this package and need few of its names."""
        if name in _MODULES:
            value = import_module(_MODULES[name])
        elif name in _HOME_OF:
            value = getattr(import_module(_HOME_OF[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
