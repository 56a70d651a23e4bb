"""Detection of members of one group that read different config topics.

A worker that hears an offset and then reads its config topic to the end has all that any reader of
that topic has. If round after round it has less than that offset, there are two topics: two
clusters share one group id, or the topic was created anew while workers ran. Connect rebalances in
a loop and logs nothing about it.

Headgate workers report which topic they read. If all members are Headgate workers, a difference is
known in the first round, even if the topics have the same length.
"""

from collections.abc import Mapping
from typing import Final

from headgate.membership.codec import Assignment, AssignmentError
from headgate.membership.last_round import LastRound
from headgate.membership.leading import Led

ROUNDS: Final = 3
"""Number of rounds in a row that are no coincidence: a member that is only slow has caught up by
then."""

_ADVICE: Final = (
    "members of one group must read one config topic. Compare config.storage.topic and"
    " bootstrap.servers of the two, and give another cluster a group.id of its own; if the topic"
    " was made anew, restart the workers that had read the old one"
)


class Disagreement:
    """Evidence that one member has of two config topics in its group."""

    def __init__(self) -> None:
        self._rounds = 0
        self._words = ""
        self.elsewhere = False
        """Whether the group belongs to another config topic than this member's."""
        self._strangers: Mapping[str, str] = {}
        """As leader: the config topic of members that read another one in the last round, by
        url."""
        self._own = ""
        self._told: dict[str, int] = {}
        """As leader: the offset that each member was told last, by url."""
        self._deaf: dict[str, int] = {}
        """As leader: the number of successive joins in which a member had read less than it had
        been told, by url."""
        self._here: frozenset[str] = frozenset()
        """Urls of the members in the last round that this member led."""

    def led(self, led: Led, config_topic: str) -> None:
        """Note a round that this member computed. A member that cannot reach the offset leaves and
        joins again, so it need not be in every round."""
        for url, read in led.read.items():
            short = read < min(self._told.get(url, read), led.offset)
            self._deaf[url] = self._deaf.get(url, 0) + 1 if short else 0
            self._told[url] = led.offset
        self._here = frozenset(led.read)
        self._strangers, self._own = led.strangers, config_topic

    def another_leads(self) -> None:
        self._deaf = {}
        self._here = frozenset()
        self._strangers = {}

    def another_topic(self, told: Assignment, config_topic: str, *, leads: bool) -> None:
        """Note that the group belongs to another config topic than `config_topic`, which this
        member reads. The leader said so in `told`; `leads` says that the leader is this member."""
        self.elsewhere = True
        self._rounds = ROUNDS
        who = "the workers of this group read" if leads else f"the leader {told.leader_url} reads"
        self._words = (
            f"{who} config topic {told.config_topic}, this worker {config_topic}: {_ADVICE}"
        )

    def same_topic(self) -> None:
        """Note that the group belongs to this member's config topic, as far as any member said."""
        if self.elsewhere:
            self.over()

    def over(self) -> None:
        self._rounds = 0
        self.elsewhere = False

    def goes_on(self, last: LastRound, read: int) -> None:
        """Note that the round `last` ended in a config mismatch; this member has read up to
        `read`."""
        self._rounds += 1
        self.elsewhere = False
        if read >= last.offset:
            self._words = (
                f"the leader {last.leader_url} has not read its config topic up to"
                f" {last.offset_text}, as others of the group have: {_ADVICE}"
            )
            return
        if last.furthest_url:
            who = f"member {last.furthest_url}"
        elif last.assignment and last.assignment.error is AssignmentError.NONE:
            who = f"the leader {last.leader_url}"
        else:
            who = f"a member other than the leader {last.leader_url}"
        self._words = (
            f"this worker's config topic has nothing after {read}, but {who} has read up to"
            f" {last.offset_text}: {_ADVICE}"
        )

    @property
    def words(self) -> str:
        """Explanation for users; empty if there is nothing to report, or the members concerned have
        left."""
        if self._rounds >= ROUNDS:
            return self._words
        if self._strangers:
            who = ", ".join(
                f"{url} reads {topic}" for url, topic in sorted(self._strangers.items())
            )
            return f"this worker leads and reads config topic {self._own}, but {who}: {_ADVICE}"
        deaf = sorted(url for url in self._here if self._deaf[url] >= ROUNDS)
        if not deaf:
            return ""
        who = ", ".join(deaf)
        return f"{who} never read as far as this leader announces: {_ADVICE}"
