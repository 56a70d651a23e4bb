"""A sink task's membership in its consumer group.

By default it uses eager rebalancing and the range assignor. Java's sink tasks offer that too, so
both kinds can share a group. With the cooperative assignor, or if the brokers compute the
assignment, partitions come and go one by one, and the others are not disturbed. librdkafka keeps
the membership from a thread of its own. A task that does not poll for ``max.poll.interval.ms``
leaves its group.

A topic pattern is matched here and not by librdkafka, whose regular expressions are POSIX's and
match anywhere in a name. The topics are listed, and the client subscribes to those that match.
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
"""Java's default of ``metadata.max.age.ms``: the greatest age of metadata about topics."""
LIST_S: Final = 3.0
LIST_AGAIN_S: Final = 1.0
_AWAY: Final = frozenset(
    {
        *(KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN),
        *(KafkaError._RESOLVE, KafkaError._TIMED_OUT_QUEUE),
    }
)
"""Errors by which no broker answers for now."""
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
    # By default the client pauses for a second each time its queue is full.
    "fetch.queue.backoff.ms": 5,
    # Without it the position in a partition without new records is not known.
    "enable.partition.eof": True,
}
"""librdkafka's settings that a sink's consumer must have."""

COOPERATIVE: Final = "cooperative-sticky"
BROKERS_PROTOCOL: Final = "consumer"
"""The ``group.protocol`` in which the brokers compute assignments (KIP-848). It is cooperative
too."""
LATEST: Final = frozenset({"latest", "largest", "end"})
"""Values of ``auto.offset.reset`` that mean the same in librdkafka."""
REQUEST_S: Final = 15.0
LEAVE_S: Final = 2.0
"""How long a member with partitions waits before it leaves in the middle of a rebalance that other
members delay."""
LEAVE_EMPTY_S: Final = 0.3
"""The same for a member without partitions. It is enough to serve the events that have come."""
_LEAVE_WAIT_S: Final = 0.01

Callback = Callable[[Sequence[TopicPartition]], None]


def _ignore(_partitions: Sequence[TopicPartition]) -> None:
    return


class KafkaConsumer:
    """A sink task's consumer, for one thread. It reads partitions without a committed offset from
    their beginning, unless ``auto.offset.reset`` says otherwise."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: SinkTopics,
        warn: Callable[[str], None],
        records_max: int | None = None,
    ) -> None:
        """
        Args:
            records_max: limit of the records of one poll. None: only the caller's limit counts.
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
        """The client has no member id once it has left its group. So the id tells whether it has
        left."""
        self._instance = self._contact.settings.get("group.instance.id") or ""
        """Id of a static member. It stays a member without a client, until its session times out
        (KIP-345)."""
        self._coming: frozenset[TopicPartition] = frozenset()
        """Partitions whose assignment is under way. The client does not have them yet."""
        self._starts: dict[TopicPartition, int] = {}
        """Offsets at which partitions of `_coming` are to start, as `seek` has set them."""
        reset = str(self._contact.settings.get("auto.offset.reset", "")).lower()
        self._at_ends = reset in LATEST
        self._begun: dict[TopicPartition, int] = {}
        """Start offsets, not committed yet, of partitions that had no committed offset. They are
        the partitions' ends when they were assigned."""
        self._kept: list[Message] = []
        """Messages fetched but not returned: of paused partitions, or beyond a poll's limit.

        Callbacks of rebalances and seeks remove the messages of partitions that are gone or moved.
        So every message must be in this list while the client is called.
        """
        self._read_to: dict[TopicPartition, int] = {}
        """Ends that partitions were read to. The last thing before an end may be a transaction
        marker."""
        self._paused: set[TopicPartition] = set()
        self._closing = False
        self._left = False
        """`_leave` was called."""
        self._failed: BaseException | None = None
        self._client = Consumer(self._contact.settings)
        self._pattern = topics if isinstance(topics, TopicPattern) else None
        self._subscribed: list[str] = []
        self._age_s = metadata_age_s(settings)
        self._look_at = 0.0
        """Monotonic time, in seconds, at which topics are listed again for the pattern."""
        if not isinstance(topics, TopicPattern):
            self._subscribe(list(topics))

    def poll(self, limit: int, timeout_ms: int) -> Sequence[ConsumerRecord]:
        """Return the next records, at most `limit`. Wait for some up to `timeout_ms`.

        Raises:
            RefusedError: the brokers refuse this client's login, or it lacks a permission.
            TransportError: the group cannot be joined, or a topic cannot be read.
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
        """Return the ends of its partitions that are known from fetches. No broker is asked."""
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
        """Return, for each partition that was read to its end, the last such end."""
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
                # The partition was assigned just now and is not being fetched yet.
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
                # A member that could not leave is removed when its session times out.
                self._warn(str(self._contact.error(f"group {self._group}", kafka_error(failed))))
        self._raise_failed()

    def _leave(self) -> None:
        """Unsubscribe, and serve the rebalance callbacks that are pending, before `close`.

        While such a callback is pending, librdkafka's own `close` leaves the group before offsets
        can be committed. Or it never returns, and stops all threads of this process (seen with
        2.16.0). Records read meanwhile are dropped.

        A static member only closes: to unsubscribe would make it leave the group too.
        """
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
        """List the topics and subscribe to those that match the pattern now.

        Raises:
            TransportError: the topics cannot be listed. Not if brokers are away: then the list is
                asked for again later.
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
        """Subscribe to `topics`.

        Under eager rebalancing the client gives its partitions back and joins again, as in any
        rebalance. Without topics it leaves the group, since librdkafka has no membership without
        topics.
        """
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
                self._kept += more  # `_kept` is another list now if partitions were revoked
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
        """Note that a partition was read to its end, unless messages of it are still kept."""
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
        # librdkafka looks for a missing topic again, and joins again after it polled too late.
        if code in UNKNOWN_TOPIC or code in REBALANCED or error.retriable():
            return
        raise self._error(f"group {self._group} cannot read", error)

    def _error(self, what: str, error: KafkaError | None) -> TransportError:
        """As `Contact.task_error`, but an error that is fatal to a consumer is a RefusedError.

        A RefusedError keeps the task from being started again. Otherwise two consumers with one
        group.instance.id would fence each other for ever.
        """
        if error is None or not (error.fatal() or error.code() in _FATAL):
            return self._contact.task_error(what, error)
        told, heard = f"{error.str()} ({error.name()})", self._contact.complaint
        seen = f"{what} at {self._contact.servers}: "
        all_told = f"{told} {heard}".lower()
        if _UNRELEASED in all_told:
            # Under KIP-848 the second consumer is refused, until the session of a killed first one
            # times out. So it is tried again.
            return TransportError(seen + HELD.format(self._instance, told))
        fenced = error.code() == KafkaError.FENCED_INSTANCE_ID
        if self._instance and (fenced or "group.instance.id" in all_told):
            return RefusedError(seen + TWINS.format(self._instance, told))
        return RefusedError(seen + (f"{told}; {heard}" if heard else told))

    # -- rebalances, from within `poll` and `close` --

    def _on_assign(self, client: Consumer, places: Sequence[Place]) -> None:
        given = [(place.topic, place.partition) for place in places]
        # Another member may have found a new topic. If this member lists topics soon, all members
        # share the new topic now and not minutes later. Java's members list topics before they
        # join again, but confluent-kafka's client cannot do so within this callback.
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
            # The client forgets a pause of partitions that are not assigned yet, so pause now.
            if paused := [Place(*each) for each in given if each in self._paused]:
                self._call(client.pause, paused)
            self._call(self._commit_begun, sorted(begun.items()))

    def _take_up(self, client: Consumer, places: Sequence[Place]) -> None:
        self._call(client.incremental_assign if self._cooperative else client.assign, places)

    def _ends(
        self, client: Consumer, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the ends of those partitions that have no committed offset.

        librdkafka itself would look the end up at the first fetch. The member that gets the
        partition next would look it up again, and skip the records in between.
        """
        known = _without_errors(client.committed([Place(*each) for each in partitions], REQUEST_S))
        unknown = [Place(p.topic, p.partition, OFFSET_END) for p in known if p.offset < 0]
        found = _without_errors(client.offsets_for_times(unknown, REQUEST_S)) if unknown else []
        return {(place.topic, place.partition): place.offset for place in found}

    def _commit_begun(self, begun: Sequence[tuple[TopicPartition, int]]) -> None:
        """Commit the offsets at which partitions without a committed offset start.

        It is done at once, since a quiet partition may have no other commit for long. If it fails,
        the next commit contains them, as in Connect: WorkerSinkTask.HandleRebalance takes positions
        as the offsets to commit.
        """
        self._begun.update(begun)
        try:
            self.commit(self._begun)
        except RebalancedError:
            pass  # a new rebalance assigns these partitions again
        except TransportError as error:
            self._warn(str(error))

    def _on_revoke(self, client: Consumer, places: Sequence[Place]) -> None:
        gone = frozenset((place.topic, place.partition) for place in places)
        if not self._cooperative:
            gone |= self._held
        self._kept = [m for m in self._kept if _place(m) not in gone]
        # Otherwise librdkafka would still pause them if they were assigned again.
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
                # No assignment follows a cooperative revocation, so tell the task that these
                # partitions are gone for good. An eager revocation precedes a new assignment.
                if not self._closing:
                    self._call(self._assigned, ())
            else:
                client.unassign()

    def _call(self, callback: Callable[[Any], object], places: Sequence[Any]) -> None:
        """Call `callback` and keep its exception for the poll to raise. If it went through
        librdkafka it would be lost, or become one that only a bare `except` catches."""
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
    """Return the greatest age of metadata, in seconds, for a client with these settings."""
    return int(settings.get("metadata.max.age.ms", METADATA_AGE_MS)) / 1000


def _without_errors(places: Sequence[Place]) -> Sequence[Place]:
    """Return `places` if none of them has an error.

    Raises:
        KafkaException: the first error among them.
    """
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
    return places


def _place(message: Message) -> tuple[str | None, int | None]:
    return message.topic(), message.partition()


headers_of: Callable[[Message], Any] = methodcaller("headers")
"""Call `message.headers()` and check for an error.

If a header's name is not UTF-8 the client sets an error and returns nevertheless. A plain method
call does not check, and the error is raised by an unrelated later call.
"""


def record_of(message: Message) -> ConsumerRecord:
    """Return the record of a message. The message is not an error, so no field is None that a
    record must have."""
    unreadable = ""
    try:
        headers = headers_of(message) or ()
    except (SystemError, UnicodeDecodeError):
        # The name of a header is not UTF-8. Java replaces what it cannot decode by U+FFFD.
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
    """Return the timestamp of a message. -1 if it has none, as in Java."""
    kind, stamp = message.timestamp()
    return int(stamp) if kind else -1
