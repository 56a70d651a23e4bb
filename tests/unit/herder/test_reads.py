"""Reads of used topics: settings that forbid them, and the leader's clean-up."""

import json

from support.herder.setups import one_worker
from support.herder.world import HerderWorld

from headgate.herder.messages import (
    Call,
    DescribeTopics,
    ErrorKind,
    Failure,
    ResetTopics,
    Result,
)
from headgate.ids import TaskId
from headgate.task.messages import TopicsUsed


def ask(world: HerderWorld, call: Call) -> Result:
    call_id = world.call("a", call)
    world.run()
    (answer,) = world.answers[call_id]
    return answer


def test_without_tracking_topics_are_neither_shown_nor_written() -> None:
    world = one_worker(topic_tracking=False)
    world.log.append(("connector-c", b'{"properties":{"connector.class":"Source"}}'))
    world.until_settled()
    disabled = Failure(ErrorKind.FORBIDDEN, "Topic tracking is disabled.")
    assert ask(world, DescribeTopics("c")) == disabled
    assert ask(world, ResetTopics("c")) == disabled
    world.report("a", world.run_of("a", TaskId("c", 0)), TopicsUsed(("t",)))
    world.run()
    assert not [line for line in world.trace if "status topic" in line]


def test_a_reset_can_be_forbidden_alone() -> None:
    world = one_worker(topic_tracking_reset=False)
    disabled = Failure(ErrorKind.FORBIDDEN, "Topic tracking reset is disabled.")
    assert ask(world, ResetTopics("c")) == disabled
    assert ask(world, DescribeTopics("c")) != disabled


def test_a_topic_of_a_connector_that_is_gone_is_forgotten_when_the_leader_reads_it() -> None:
    world = one_worker()
    late = {"topic": {"name": "t", "connector": "gone", "task": 0, "discoverTimestamp": 5}}
    world.statuses.append(("status-topic-t:connector-gone", json.dumps(late).encode()))
    world.run()
    assert "a: status -topic-t:connector-gone" in world.trace


def test_a_topic_carries_the_wall_time_of_its_discovery() -> None:
    world = one_worker()
    world.log.append(("connector-c", b'{"properties":{"connector.class":"Source"}}'))
    world.advance(500)
    world.until_settled()
    world.report("a", world.run_of("a", TaskId("c", 0)), TopicsUsed(("t",)))
    world.run()
    (value,) = [value for key, value in world.statuses if key == "status-topic-t:connector-c"]
    assert value is not None
    assert json.loads(value)["topic"]["discoverTimestamp"] == world.now_ms
