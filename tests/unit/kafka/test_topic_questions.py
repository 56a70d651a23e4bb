"""Questions about topics to the controller are asked again when the named controller is gone.

If the admin client may not describe a topic, the producers are asked about it.
"""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from headgate.ports import RefusedError
from headgate_kafka.admin.permissions import Permission, ResourceKind, Rights, Verdict
from headgate_kafka.failures import Contact
from headgate_kafka.logs.reading import NoRightError
from headgate_kafka.records.topics import ClientsSettings, KafkaRecordLog


class AdminClient:
    """The first question is not answered in time: it went to a broker that is gone."""

    def __init__(self) -> None:
        self.asked = 0
        self.looks = 0

    def _answer(self, result: object) -> Future[Any]:
        self.asked += 1
        answer: Future[Any] = Future()
        if self.looks:
            answer.set_result(result)
        else:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return answer

    def create_topics(self, new: list[Any], **_limits: float) -> dict[str, Future[Any]]:
        return {new[0].topic: self._answer(None)}

    def describe_topics(self, _topics: object, **_options: object) -> dict[str, Future[Any]]:
        found = SimpleNamespace(authorized_operations=[AclOperation.WRITE])
        return {"t": self._answer(found)}

    def list_topics(self, timeout: float) -> None:
        self.looks += 1

    def poll(self, _timeout: float) -> int:
        return 0


class Topics:
    """The topic `t` as one login sees it. None: it does not exist."""

    def __init__(self, count: int | None, *, refused: bool = False, who: str = "admin") -> None:
        self.client = AdminClient()
        self.contact = Contact({"bootstrap.servers": "b:9092"}, warn=lambda _line: None)
        self.count = count
        self._refused = refused
        self._who = who

    def known(self, _topic: str) -> int | None:
        if self._refused:
            raise NoRightError(f"User:{self._who} lacks Describe on Topic:t")
        return self.count

    def await_topic(self, topic: str) -> None:
        assert self.client.asked == 2 or self._who == "writer"
        assert self.known(topic) is None, "made just now"


def record_log(admin: Topics, writer: Topics | None = None) -> KafkaRecordLog:
    unused: Any = None
    settings = ClientsSettings(lambda *_names: {}, lambda *_names: {})
    log = KafkaRecordLog(admin, unused, settings, unused, lambda _line: None)  # type: ignore[arg-type]
    log.__dict__["_as_producer"] = writer
    return log


def test_a_topic_is_made_although_the_controller_that_was_named_is_gone() -> None:
    topics = Topics(None)
    record_log(topics).create_topic("t", 1)
    assert (topics.client.asked, topics.client.looks) == (2, 1)


def test_rights_on_a_topic_are_told_although_the_controller_that_was_named_is_gone() -> None:
    topics = Topics(1)
    unused: Callable[..., Any] = pytest.fail
    rights = Rights(topics, unused, unused, unused, None)  # type: ignore[arg-type]
    write = Permission("Write", ResourceKind.TOPIC, "t", "records")
    [tried] = rights.try_all([write])
    assert tried.verdict is Verdict.GRANTED
    assert (topics.client.asked, topics.client.looks) == (2, 1)


def test_of_a_topic_that_the_admin_client_may_not_see_the_producers_are_told() -> None:
    admin, writer = Topics(3, refused=True), Topics(3, who="writer")
    log = record_log(admin, writer)
    log.create_topic("t", 1)
    assert log._partitions_to_write("t") == 3
    assert admin.client.asked == 0, "it is there"


def test_a_topic_that_only_producers_may_see_is_made_by_the_admin_client() -> None:
    admin, writer = Topics(None, refused=True), Topics(None, who="writer")
    record_log(admin, writer).create_topic("t", 1)
    assert admin.client.asked == 2


def test_who_may_not_see_it_at_all_is_refused() -> None:
    admin, writer = Topics(None, refused=True), Topics(None, refused=True, who="writer")
    with pytest.raises(RefusedError, match="Describe on Topic:t; producers need Write on Topic:t"):
        record_log(admin, writer).create_topic("t", 1)
