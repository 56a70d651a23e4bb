"""Parts of a `ConfigState` that the stories in specs/config-log do not show."""

from headgate.ids import TargetState, TaskId
from headgate.topics import config_events as events
from headgate.topics import config_records as records
from headgate.topics import config_reducer as reducer
from headgate.topics.config_state import ConfigState


def folded(*said: events.ConfigEvent) -> ConfigState:
    return reducer.fold(ConfigState(), said)


def test_a_tombstone_lets_go_of_all_task_configs() -> None:
    state = folded(
        events.ConnectorConfigured(0, "a", {}),
        events.TaskConfigured(1, "a", 0, {}),
        events.TaskConfigured(2, "a", 1, {}),
        events.TasksCommitted(3, "a", 1),
        events.ConnectorRemoved(4, "a"),
    )
    assert dict(state.entries["a"].tasks) == {}
    assert state.task_config(TaskId("a", 0)) is None
    assert state.entry("a") is None


def test_task_configs_beyond_the_count_are_kept_out_of_reach() -> None:
    state = folded(
        events.ConnectorConfigured(0, "a", {}),
        events.TaskConfigured(1, "a", 0, {"n": "0"}),
        events.TaskConfigured(2, "a", 1, {"n": "1"}),
        events.TasksCommitted(3, "a", 2),
        events.TaskConfigured(4, "a", 0, {"n": "new"}),
        events.TasksCommitted(5, "a", 1),
    )
    assert dict(state.entries["a"].tasks) == {0: {"n": "new"}, 1: {"n": "1"}}
    assert state.tasks("a") == (TaskId("a", 0),)
    assert state.task_config(TaskId("a", 1)) is None
    assert state.task_config(TaskId("a", -1)) is None


def test_inconsistent_tasks_have_no_configs() -> None:
    state = folded(
        events.ConnectorConfigured(0, "a", {}),
        events.TaskConfigured(1, "a", 0, {}),
        events.TasksCommitted(2, "a", 1),
        events.TasksCommitted(3, "a", 1),
    )
    assert state.tasks("a") == ()
    assert state.task_config(TaskId("a", 0)) is None


def test_connectors_are_named_in_the_order_of_their_first_record() -> None:
    state = folded(
        events.TargetStateChanged(0, "c", TargetState.PAUSED),
        events.ConnectorConfigured(1, "b", {}),
        events.ConnectorConfigured(2, "a", {}),
        events.ConnectorConfigured(3, "c", {}),
        events.ConnectorRemoved(4, "b"),
    )
    assert list(state.connector_names()) == ["c", "a"]


def test_an_empty_batch_changes_nothing() -> None:
    state = folded(events.ConnectorConfigured(0, "a", {}))
    assert reducer.fold(state, ()) == state


def test_secrets_are_not_shown() -> None:
    shown = repr(events.SessionKeyChanged(0, b"secret", "HmacSHA256", 1))
    assert "secret" not in shown
    assert "6 bytes" in shown


def test_a_record_without_a_key_is_refused_and_counts() -> None:
    event = records.decode(7, None, b"{}")
    assert event == events.RecordRejected(7, "", "a record without a key")
    assert reducer.apply(ConfigState(), event).offset == 8
    # Its value is looked at first, as in Java.
    assert records.decode(7, None, b"{") == events.RecordRejected(
        7, "", "not JSON at byte 1: expected a name in double quotes", advances=False
    )
