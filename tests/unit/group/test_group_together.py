"""Member machines and the coordinator machine together: safety at every step, then convergence."""

from collections.abc import Sequence

import pytest
from support.group.cluster import OFFERS, OURS, Cluster, TwoOwnersError

from headgate.membership.member import Member
from headgate.membership.member_messages import MemberOutput, MemberState, WorkView

SEEDS = range(40)


def disturb(cluster: Cluster) -> None:
    random = cluster.random
    # Several may have been asked to leave, one after the other.
    worker = random.choice(cluster.workers) if cluster.workers else cluster.start_worker()
    kinds = 6 if len(cluster.offers) == 1 else 10
    match random.randrange(kinds if len(cluster.topics) == 1 else 8):
        case 0:
            cluster.start_worker()
        case 1 if len(cluster.workers) > 1:
            cluster.crash(worker)
        case 2:
            cluster.freeze(worker, random.choice([300, 900, 1_500, 5_000]))
        case 3:
            cluster.change_config()
        case 6 | 7 if len(cluster.workers) > 1:
            cluster.leave(worker)
        case 8:
            cluster.write_record()
        case 9:
            cluster.start_worker()
        case _:
            pass


def run_with_faults(
    seed: int,
    offers: Sequence[tuple[str, ...]] = (OURS,),
    policy: str = "kip415",
    topics: Sequence[str] = ("",),
) -> Cluster:
    cluster = Cluster(seed, offers=offers, policy=policy, topics=topics)
    for _ in range(25):
        cluster.run(cluster.random.choice([50, 400, 1_500]))
        disturb(cluster)
    return cluster


def in_words(cluster: Cluster) -> list[object]:
    return [
        (w.name, w.topic, w.member.state, w.member.pending, sorted(map(str, w.running)))
        for w in cluster.workers
    ]


@pytest.mark.parametrize(
    ("offers", "policy"),
    [((OURS,), "kip415"), ((OURS,), "connect"), (OFFERS, "kip415")],
    ids=["ours", "ours-by-connect", "mixed"],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_owner_under_faults_then_convergence(
    seed: int, offers: Sequence[tuple[str, ...]], policy: str
) -> None:
    cluster = run_with_faults(seed, offers, policy)
    cluster.faulty = False
    if all(worker.leaving for worker in cluster.workers):
        cluster.start_worker()
    # The longest that anything may take: freezes end, sessions end, the delay passes.
    cluster.run(20_000)
    if len(offers) > 1 or policy == "connect":
        # Apache's assignor, which leads in Java's protocols, may leave deleted work where it is
        # after a failed sync: it goes in the next round.
        cluster.change_config()
        cluster.run(10_000)
    assert cluster.settled(), in_words(cluster)
    rebalances = [worker.member.rebalances for worker in cluster.workers]
    cluster.run(10_000)
    assert [worker.member.rebalances for worker in cluster.workers] == rebalances, "stays put"


@pytest.mark.parametrize("seed", SEEDS)
def test_two_clusters_in_one_group_never_run_each_others_work(seed: int) -> None:
    """Their topics have one length and name the same connectors. One of the clusters has the group,
    and settles though members of the other join again and again."""
    cluster = run_with_faults(seed, topics=("here", "there"))
    cluster.faulty = False
    if all(worker.leaving for worker in cluster.workers):
        cluster.start_worker()
    cluster.run(30_000)
    for _ in range(50):
        assert cluster.settled(), in_words(cluster)
        cluster.run(100)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_clusters_in_one_group_the_first_keeps_it_though_its_leaders_go(seed: int) -> None:
    """That holds whichever member the coordinator makes the next leader. Workers of the other
    cluster try again each second here, so they are often in the group."""
    cluster = Cluster(seed, workers=0, topics=("here", "there"))
    cluster.faulty = False
    for _ in range(3):
        cluster.start_worker("here")
    cluster.run(5_000)
    for _ in range(3):
        cluster.start_worker("there")
    for _ in range(15):
        cluster.run(cluster.random.choice([700, 2_300, 4_100]))
        leaders = [worker for worker in cluster.workers if worker.member.is_leader]
        cluster.start_worker("here")
        for leader in leaders:
            cluster.random.choice([cluster.leave, cluster.crash])(leader)
    cluster.run(10_000)
    assert cluster.settled(), in_words(cluster)
    assert {worker.topic for worker in cluster.workers if worker.running} == {"here"}


def two_owners(seeds: range) -> bool:
    for seed in seeds:
        try:
            run_with_faults(seed)
        except TwoOwnersError:
            return True
    return False


def test_the_check_fails_if_what_is_stopping_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    join = Member._join

    def forgetful(member: Member, now_ms: int, view: WorkView, reason: str) -> list[MemberOutput]:
        return join(
            member,
            now_ms,
            WorkView(view.assignment_offset, view.config_offset, view.connectors),
            reason,
        )

    monkeypatch.setattr(Member, "_join", forgetful)
    assert two_owners(range(60))


def test_the_check_fails_if_a_member_joins_before_its_work_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    act = Member._act

    def hasty(member: Member, now_ms: int, assignment: object, view: WorkView) -> list[object]:
        outputs: list[object] = [*act(member, now_ms, assignment, view)]  # type: ignore[arg-type]
        if member.state is MemberState.RELEASING:
            bare = WorkView(view.assignment_offset, view.config_offset, view.connectors)
            outputs += member._join(now_ms, bare, "hasty")
        return outputs

    monkeypatch.setattr(Member, "_act", hasty)
    assert two_owners(range(60))
