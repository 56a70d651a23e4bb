"""A leader reads the whole log before it decides, unless it has led without a break."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from headgate.herder.context import Context, Membership
from headgate.herder.leadership import CallJob, Leadership
from headgate.herder.messages import (
    AppendConfig,
    ClaimLeadership,
    ConfigAppendFailed,
    LeadershipClaimed,
    PutConnectorConfig,
    ReadConfigToEnd,
)
from headgate.herder.settings import HerderSettings
from headgate.membership.protocols import HEADGATE

E = TypeVar("E")
CONFIG = {"connector.class": "Source"}


class Leader:
    """A worker that has led generation 5, with a write under way."""

    def __init__(self) -> None:
        self.ctx = Context(HerderSettings(worker_id="a", url="http://a/"), 0)
        self.leadership = Leadership(self.ctx)
        self.leads(5)
        self.claimed(5)
        self.read()
        assert self.leadership.ready
        self.asks("under-way")
        (append,) = self.did(AppendConfig)
        self.append = append

    def leads(self, generation: int, member: str = "me") -> None:
        self.ctx.membership = Membership(
            "me", generation, HEADGATE, member, "http://a/", True, True
        )
        self.leadership.membership_changed()

    def claimed(self, generation: int, error: str | None = None) -> None:
        self.leadership.on_claimed(LeadershipClaimed(generation, error))

    def asks(self, name: str) -> None:
        self.leadership.submit(CallJob(len(name), PutConnectorConfig(name, CONFIG)))

    def read(self) -> None:
        (asked,) = self.did(ReadConfigToEnd)
        purpose = self.ctx.end_read(asked.token)
        self.leadership.on_all_read(purpose.generation, None)  # type: ignore[union-attr]

    def did(self, kind: type[E]) -> list[E]:
        found, self.ctx.effects = self.ctx.effects, []
        return [effect for effect in found if isinstance(effect, kind)]


def test_who_led_the_generation_before_decides_as_soon_as_the_claim_stands() -> None:
    leader = Leader()
    leader.leads(6)
    leader.asks("c")
    assert leader.did(ClaimLeadership) == [ClaimLeadership(6)]
    leader.claimed(6)
    (append,) = leader.did(AppendConfig)
    assert append.privileged


def _another_led(leader: Leader) -> None:
    leader.leads(7)
    leader.claimed(7)


def _it_followed(leader: Leader) -> None:
    leader.leads(6, "another")
    leader.leads(7)
    leader.claimed(7)


def _it_had_not_read(leader: Leader) -> None:
    leader.leads(7)
    leader.claimed(7)
    leader.leads(8)
    leader.ctx.effects = []
    leader.claimed(8)


def _a_claim_failed(leader: Leader) -> None:
    leader.leads(6)
    leader.claimed(6, "no broker")
    leader.leadership.claim_again(6)
    leader.claimed(6)


def _a_write_was_lost(leader: Leader) -> None:
    """Let a write fail without an answer, so that its records may be in the log."""
    leader.leads(6)
    token = leader.append.token
    leader.leadership.on_append_failed(ConfigAppendFailed(token, "no answer", fenced=False))
    leader.claimed(6)


def _it_was_overtaken(leader: Leader) -> None:
    leader.leads(6)
    token = leader.append.token
    leader.leadership.on_append_failed(ConfigAppendFailed(token, "overtaken", fenced=True))
    leader.leadership.claim_again(6)
    leader.claimed(6)


@pytest.mark.parametrize(
    "broken",
    [
        _another_led,
        _it_followed,
        _it_had_not_read,
        _a_claim_failed,
        _a_write_was_lost,
        _it_was_overtaken,
    ],
)
def test_after_a_break_it_reads_to_the_end_first(broken: Callable[[Leader], None]) -> None:
    leader = Leader()
    broken(leader)
    assert not leader.leadership.ready
    leader.asks("c")
    leader.read()
    assert leader.leadership.ready
    names = [append.records[0][0] for append in leader.did(AppendConfig)]
    assert "connector-c" in names
