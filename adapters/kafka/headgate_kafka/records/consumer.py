"""A sink task's membership in its consumer group.

Eager, with the range assignor unless the user says otherwise: what Java's sink tasks in the same
group offer too, so that both kinds can share it. With the cooperative assignor, or where brokers do
the sharing, partitions come and go one by one, and what stays is not disturbed. librdkafka keeps
the membership from a thread of its own; a task that does not poll for ``max.poll.interval.ms``
leaves its group.

A pattern is matched here, not by librdkafka, whose expressions are POSIX's and match anywhere in a
name: topics are listed, and the client subscribes to the names of those that match.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import (
    TopicPartition as Place,
)

from headgate.connector.sink_names import SinkTopics, TopicPattern
from headgate.ports import (
    ConsumerRecord,
    Headers,
    RebalancedError,
    RefusedError,
    TopicPartition,
    TransportError,
)
from headgate_kafka.failures import REBALANCED, UNKNOWN_TOPIC, Contact, kafka_error

METADATA_AGE_MS: Final = 300_000
"""Java's ``metadata.max.age.ms``: how old what is known of topics may be."""
LIST_S: Final = 3.0
LIST_AGAIN_S: Final = 1.0
_AWAY: Final = frozenset(
    {
        *(KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN),
        *(KafkaError._RESOLVE, KafkaError._TIMED_OUT_QUEUE),
    }
)
"""Nobody answers, for now."""
_FATAL: Final = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID})
_UNRELEASED: Final = "instance id is still used"
_OF_ITS_OWN: Final = (
    "Each task needs its own: leave consumer.override.group.instance.id out, or set tasks.max to 1 "
    "and run no other consumer with it"
)
TWINS: Final = "another consumer has come with the same group.instance.id, {!r}: {}. " + _OF_ITS_OWN
HELD: Final = "another consumer has the same group.instance.id, {!r}: {}. " + _OF_ITS_OWN
SEEK_MS: Final = 10_000
_SEEK_WAIT_S: Final = 0.01
READER: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Each time its queue is full the client would else rest a second.
    "fetch.queue.backoff.ms": 5,
    # Else nobody knows where a partition is read to that has nothing new.
    "enable.partition.eof": True,
}
"""What a sink's consumer must have, in librdkafka's words."""

COOPERATIVE: Final = "cooperative-sticky"
BROKERS_PROTOCOL: Final = "consumer"
"""A ``group.protocol`` in which the brokers share partitions out (KIP-848): cooperative, too."""
LATEST: Final = frozenset({"latest", "largest", "end"})
"""Values of ``auto.offset.reset`` that are one in librdkafka."""
REQUEST_S: Final = 15.0
LEAVE_S: Final = 2.0
"""Wait before a member that holds partitions leaves in the middle of a rebalance held up by
others."""
LEAVE_EMPTY_S: Final = 0.3
"""The same for a member without partitions: enough to be served what has come already."""
_LEAVE_WAIT_S: Final = 0.01

Callback = Callable[[Sequence[TopicPartition]], None]


def _ignore(_partitions: Sequence[TopicPartition]) -> None:
    return


class KafkaConsumer:
    """Used by one thread. Partitions without a committed offset are read from their beginning,
    unless ``auto.offset.reset`` says otherwise."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: SinkTopics,
        warn: Callable[[str], None],
        records_max: int | None = None,
    ) -> None:
        """
        Args:
            records_max: of one poll; None: as many as are asked for.
        """
        self._records_max = records_max
        self._contact = Contact({"fetch.queue.backoff.ms": 5, **settings, **READER}, warn)
        self._group = str(settings.get("group.id", ""))
        self._warn = warn
        self._assigned: Callback = _ignore
        self._revoked: Callback = _ignore
        self._held: frozenset[TopicPartition] = frozenset()
        strategy = settings.get("partition.assignment.strategy")
        protocol = str(settings.get("group.protocol", "")).lower()
        self._cooperative = strategy == COOPERATIVE or protocol == BROKERS_PROTOCOL
        self._forgets_member_id = protocol != BROKERS_PROTOCOL
        """When it has left its group, and so tells that it has."""
        self._instance = self._contact.settings.get("group.instance.id") or ""
        """It stays a member while it is away, for its session's time (KIP-345)."""
        self._coming: frozenset[TopicPartition] = frozenset()
        """Partitions that are being taken up: the client does not know them yet."""
        self._starts: dict[TopicPartition, int] = {}
        """Offsets to seek to, by partition."""
        reset = str(self._contact.settings.get("auto.offset.reset", "")).lower()
        self._at_ends = reset in LATEST
        self._begun: dict[TopicPartition, int] = {}
        """Ends that partitions without a committed offset begin at, not committed yet."""
        self._kept: list[Message] = []
        """Fetched and not given: of paused partitions, or by a poll that wanted fewer. Callbacks of
        rebalances and seeks take out what is not to be given any more, so a message is nowhere else
        while the client is called."""
        self._read_to: dict[TopicPartition, int] = {}
        """Ends that partitions were read to. A marker of a transaction may be the last of one."""
        self._paused: set[TopicPartition] = set()
        self._closing = False
        self._left = False
        """It has been tried."""
        self._failed: BaseException | None = None
        self._client = Consumer(self._contact.settings)
        self._pattern = topics if isinstance(topics, TopicPattern) else None
        self._subscribed: list[str] = []
        self._age_s = metadata_age_s(settings)
        self._look_at = 0.0
        """When topics are listed next, for the pattern."""
        if not isinstance(topics, TopicPattern):
            self._subscribe(list(topics))

    def poll(self, limit: int, timeout_ms: int) -> Sequence[ConsumerRecord]:
        """
        Raises:
            RefusedError: the brokers do not let this client in, or it lacks a right.
            TransportError: the group cannot be joined or a topic not be read.
        """
        until = time.monotonic() + timeout_ms / 1000
        if self._records_max is not None:
            limit = min(limit, self._records_max)
        while True:
            found = self._take(limit, max(0.0, until - time.monotonic()))
            if found or time.monotonic() >= until:
                return found

    def assignment(self) -> frozenset[TopicPartition]:
        return self._held

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """Ends of its partitions as brokers told them last; they are not asked."""
        ends: dict[TopicPartition, int] = {}
        for place in self._held:
            try:
                found = self._client.get_watermark_offsets(Place(*place), cached=True)
            except KafkaException:
                continue
            if found is not None and found[1] >= 0:
                ends[place] = found[1]
        return ends

    def known_positions(self) -> Mapping[TopicPartition, int]:
        """Positions at which partitions were read to their ends, the last of each."""
        return self._read_to

    def on_rebalance(self, assigned: Callback, revoked: Callback) -> None:
        self._assigned = assigned
        self._revoked = revoked

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if not offsets:
            return
        wanted = {**self._begun, **offsets}
        try:
            done = self._client.commit(
                offsets=[Place(*place, offset) for place, offset in wanted.items()],
                asynchronous=False,
            )
        except KafkaException as failed:
            raise self._commit_error(kafka_error(failed)) from None
        errors = [place.error for place in done or () if place.error is not None]
        if errors:
            raise self._commit_error(errors[0])
        self._begun.clear()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._begun.pop(partition, None)
        self._read_to.pop(partition, None)
        self._kept = [m for m in self._kept if _place(m) != partition]
        if partition in self._coming:
            self._starts[partition] = offset
            return
        deadline = time.monotonic() + SEEK_MS / 1000
        while True:
            try:
                self._client.seek(Place(*partition, offset))
                return
            except KafkaException as failed:
                error = kafka_error(failed)
                # Just assigned: it is not being fetched yet.
                early = error is not None and error.code() == KafkaError._STATE
                if not early or time.monotonic() > deadline:
                    raise self._contact.task_error(
                        f"{partition[0]}-{partition[1]} could not be set to {offset}", error
                    ) from None
            time.sleep(_SEEK_WAIT_S)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused.update(partitions)
        self._client.pause(self._known(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(partitions)
        self._client.resume(self._known(partitions))

    def _known(self, partitions: Sequence[TopicPartition]) -> list[Place]:
        return [Place(*each) for each in partitions if each not in self._coming]

    def close(self) -> None:
        """Leave the group. Offsets may still be committed inside `revoked`."""
        self._closing = True
        for step in (self._leave, self._client.close):
            try:
                step()
            except KafkaException as failed:
                # Who cannot say goodbye is removed when its session ends.
                self._warn(str(self._contact.error(f"group {self._group}", kafka_error(failed))))
        self._raise_failed()

    def _leave(self) -> None:
        """librdkafka's own `close`, while something that a rebalance gives or takes waits to be
        served, leaves the group before offsets can be committed, or never returns and stops all
        threads of this process (seen with 2.16.0). This serves it first. What is read meanwhile is
        nobody's any more.

        Static members are left to `close`: who unsubscribes leaves, they as well."""
        if self._instance or self._left:
            return
        self._left = True
        self._client.unsubscribe()
        began, holds = time.monotonic(), True
        while time.monotonic() - began < (LEAVE_S if holds else LEAVE_EMPTY_S):
            self._client.poll(_LEAVE_WAIT_S)
            holds = bool(self._held or self._client.assignment())
            if not holds and not self._is_member():
                return

    def _is_member(self) -> bool:
        return self._forgets_member_id and bool(self._client.memberid())

    # -- topics that match --

    def _look(self, pattern: TopicPattern) -> None:
        """Subscribe to what matches by now.

        Raises:
            TransportError: the topics may not be listed. Brokers that are away are asked again.
        """
        try:
            names = self._client.list_topics(timeout=LIST_S).topics
        except KafkaException as failed:
            error = kafka_error(failed)
            if error is not None and not (error.code() in _AWAY or error.retriable()):
                what = f"the topics that group {self._group} reads could not be listed"
                raise self._contact.task_error(what, error) from None
            self._look_at = time.monotonic() + LIST_AGAIN_S
            return
        self._look_at = time.monotonic() + self._age_s
        found = pattern.of(names)
        if found != self._subscribed:
            self._subscribe(found)

    def _subscribe(self, topics: list[str]) -> None:
        """Under eager rebalancing the client gives back what it holds and joins again, as with any
        rebalance. Nothing to read is no membership: librdkafka has none without topics."""
        self._subscribed = topics
        if topics:
            self._client.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke)
        else:
            self._client.unsubscribe()

    # -- records --

    def _take(self, limit: int, wait_s: float) -> list[ConsumerRecord]:
        if self._pattern is not None and time.monotonic() >= self._look_at:
            self._look(self._pattern)
        ready = limit > 0 and any(not self._is_held_back(m) for m in self._kept)
        first = self._client.poll(0 if ready else wait_s)
        self._raise_failed()
        if first is None and self._contact.refusal:
            raise self._contact.task_error(f"group {self._group} cannot be joined or read")
        if first is not None:
            self._kept.append(first)
            room = limit - sum(not self._is_held_back(m) for m in self._kept)
            if room > 0:
                more = self._client.consume(room, 0)
                self._kept += more  # which is another list by now, if partitions were revoked
                self._raise_failed()
        messages, held = self._kept, list[Message]()
        if self._paused:
            held = [m for m in messages if self._is_held_back(m)]
            messages = [m for m in messages if not self._is_held_back(m)]
        self._kept = messages[limit:] + held
        records: list[ConsumerRecord] = []
        for message in messages[:limit]:
            error = message.error()
            if error is None:
                records.append(record_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended(cast(TopicPartition, _place(message)), message.offset() or 0)
            else:
                self._heard(error)
        return records

    def _ended(self, place: TopicPartition, end: int) -> None:
        """All before `end` is given, but for what is held back."""
        if place in self._held and not any(_place(kept) == place for kept in self._kept):
            self._read_to[place] = end

    def _is_held_back(self, message: Message) -> bool:
        return message.error() is None and _place(message) in self._paused

    def _heard(self, error: KafkaError) -> None:
        code = error.code()
        if code == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
            raise RefusedError(
                f"group {self._group} cannot be joined: {error.name()}; its members are no sink "
                "tasks of this cluster, name another group"
            )
        # A topic that does not exist yet is looked for again; who polled too late joins again.
        if code in UNKNOWN_TOPIC or code in REBALANCED or error.retriable():
            return
        raise self._error(f"group {self._group} cannot read", error)

    def _error(self, what: str, error: KafkaError | None) -> TransportError:
        """As `Contact.task_error`; but what is fatal to a consumer does not pass, so its task is
        not to start anew: two of one group.instance.id would shut each other out for ever."""
        if error is None or not (error.fatal() or error.code() in _FATAL):
            return self._contact.task_error(what, error)
        told, heard = f"{error.str()} ({error.name()})", self._contact.complaint
        seen = f"{what} at {self._contact.servers}: "
        all_told = f"{told} {heard}".lower()
        if _UNRELEASED in all_told:
            # With the brokers' protocol the second is refused, also for the session's time after a
            # kill of the first: it is tried again.
            return TransportError(seen + HELD.format(self._instance, told))
        fenced = error.code() == KafkaError.FENCED_INSTANCE_ID
        if self._instance and (fenced or "group.instance.id" in all_told):
            return RefusedError(seen + TWINS.format(self._instance, told))
        return RefusedError(seen + (f"{told}; {heard}" if heard else told))

    # -- rebalances, from within `poll` and `close` --

    def _on_assign(self, client: Consumer, places: Sequence[Place]) -> None:
        given = [(place.topic, place.partition) for place in places]
        # Another member may have found a topic: it is shared when all know it, not when the last
        # has looked, minutes later. Java's look before they join again; within this callback
        # confluent-kafka's client cannot.
        self._look_at = 0.0
        if self._closing:
            self._take_up(client, places)
            return
        self._coming = frozenset(given)
        self._held |= self._coming
        try:
            if given or not self._cooperative:
                self._call(self._assigned, given)
        finally:
            starts, self._starts = self._starts, {}
            self._coming = frozenset()
            begun: dict[TopicPartition, int] = {}
            if self._at_ends:
                fresh = [each for each in given if each not in starts]
                self._call(lambda places: begun.update(self._ends(client, places)), fresh)
                starts = {**begun, **starts}
            taken = [
                Place(*each, starts[each] or OFFSET_BEGINNING) if each in starts else Place(*each)
                for each in given
            ]
            self._take_up(client, taken)
            # Only now does the client know them: before, it would forget that they are paused.
            if paused := [Place(*each) for each in given if each in self._paused]:
                self._call(client.pause, paused)
            self._call(self._commit_begun, sorted(begun.items()))

    def _take_up(self, client: Consumer, places: Sequence[Place]) -> None:
        self._call(client.incremental_assign if self._cooperative else client.assign, places)

    def _ends(
        self, client: Consumer, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where those without a committed offset end. Left to librdkafka that is found when they
        are fetched first, and again by whoever has them next, who would skip what came between."""
        known = _without_errors(client.committed([Place(*each) for each in partitions], REQUEST_S))
        unknown = [Place(p.topic, p.partition, OFFSET_END) for p in known if p.offset < 0]
        found = _without_errors(client.offsets_for_times(unknown, REQUEST_S)) if unknown else []
        return {(place.topic, place.partition): place.offset for place in found}

    def _commit_begun(self, begun: Sequence[tuple[TopicPartition, int]]) -> None:
        """At once, as a quiet partition may have no other commit for long; or else with the first,
        as Connect does: WorkerSinkTask.HandleRebalance takes positions for offsets to commit."""
        self._begun.update(begun)
        try:
            self.commit(self._begun)
        except RebalancedError:
            pass  # they are given anew, to this member or another
        except TransportError as error:
            self._warn(str(error))

    def _on_revoke(self, client: Consumer, places: Sequence[Place]) -> None:
        gone = frozenset((place.topic, place.partition) for place in places)
        if not self._cooperative:
            gone |= self._held
        self._kept = [m for m in self._kept if _place(m) not in gone]
        # librdkafka would take them up paused if they came back.
        if paused := [Place(*each) for each in sorted(gone & self._paused)]:
            self._call(client.resume, paused)
        self._paused -= gone
        try:
            if given_back := sorted(gone & self._held):
                self._call(self._revoked, given_back)
        finally:
            self._held -= gone
            self._read_to = {
                place: end for place, end in self._read_to.items() if place not in gone
            }
            self._begun = {place: end for place, end in self._begun.items() if place not in gone}
            if self._cooperative:
                self._call(client.incremental_unassign, list(places))
                # Gone for good, unlike what is taken to be shared anew.
                if not self._closing:
                    self._call(self._assigned, ())
            else:
                client.unassign()

    def _call(self, callback: Callable[[Any], object], places: Sequence[Any]) -> None:
        """Passes what a callback raises to the poll. librdkafka's own way out would lose it,
        or make of it something that only a bare `except` catches."""
        try:
            callback(places)
        except KafkaException as failed:
            what = f"partitions of group {self._group} could not be taken up or given back"
            self._failed = self._failed or self._error(what, kafka_error(failed))
        except BaseException as failed:  # also a task that is told to exit
            self._failed = self._failed or failed

    def _raise_failed(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _commit_error(self, error: KafkaError | None) -> Exception:
        what = f"offsets of group {self._group} were not committed"
        if error is not None and error.code() in REBALANCED:
            return RebalancedError(f"{what}: {error.name()} ({error.str()})")
        return self._error(what, error)


def metadata_age_s(settings: Mapping[str, Any]) -> float:
    """How long what is known of topics holds, for a client with these settings."""
    return int(settings.get("metadata.max.age.ms", METADATA_AGE_MS)) / 1000


def _without_errors(places: Sequence[Place]) -> Sequence[Place]:
    """
    Raises:
        KafkaException: the first of their errors.
    """
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
    return places


def _place(message: Message) -> tuple[str | None, int | None]:
    return message.topic(), message.partition()


headers_of: Callable[[Message], Any] = methodcaller("headers")
"""`message.headers()`, checked. On a name that is not UTF-8 the client sets an error and
returns all the same; a plain call does not look, and the error hits whatever is called next."""


def record_of(message: Message) -> ConsumerRecord:
    """Record of a message that is no error, so none of this is missing."""
    unreadable = ""
    try:
        headers = headers_of(message) or ()
    except (SystemError, UnicodeDecodeError):
        # The client fails so on a header whose name is not UTF-8. Java puts U+FFFD in its place.
        headers, unreadable = (), "the name of a header is not UTF-8"
    return ConsumerRecord(
        cast(str, message.topic()),
        cast(int, message.partition()),
        cast(int, message.offset()),
        message.key(),
        message.value(),
        cast(Headers, tuple(headers)),
        timestamp_ms(message),
        unreadable,
    )


def timestamp_ms(message: Message) -> int:
    """-1 where the record has none, as in Java."""
    kind, stamp = message.timestamp()
    return int(stamp) if kind else -1
