"""Spark on several hosts: a standalone cluster of two workers, each with an address and a folder of
its own, whose Python knows nothing of Headgate."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka.broker import Found
from support.spark.lake import SETTINGS, Lake, complete, driver
from support.spark.lake import until as until_within
from support.spark.standalone import HOSTS, Standalone, bare_python

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

until = partial(until_within, seconds=300)
"""Six JVMs share the machine."""
DRIVER_HOST = "127.0.0.4"
MakeWorker = Callable[..., HeadgateWorker]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    made = Standalone(tmp_path_factory.mktemp("standalone"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the executors."""
    return bare_python(tmp_path_factory.mktemp("python"))


@pytest.fixture
def lake(
    request: pytest.FixtureRequest,
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    cluster: Standalone,
    python: Path,
    tmp_path: Path,
) -> Lake:
    """On a Spark of the worker's own, whose executors are on the cluster's hosts. Its parameter has
    further settings of the worker."""
    conf = tmp_path / "spark.conf"
    conf.write_text(f"spark.executor.memory 700m\nspark.pyspark.python {python}\n")
    settings = {
        **SETTINGS,
        "headgate.spark.master": cluster.master_url,
        "headgate.spark.host": DRIVER_HOST,
        "headgate.spark.conf.file": str(conf),
        "headgate.data": str(tmp_path / "data"),
        **getattr(request, "param", {}),
    }
    worker = headgate_worker(kafka_broker.address, kafka_name, settings)
    return Lake(worker, kafka_broker.address, kafka_name, tmp_path)


def test_files_to_files_while_executors_workers_and_the_application_die(
    lake: Lake, cluster: Standalone
) -> None:
    expected = lake.write()
    lake.create(rate=300)
    until("tasks on both hosts", lambda: set(cluster.bodies().values()) == set(HOSTS), lake.worker)
    shipped = {path.name for host in HOSTS for path in cluster.work(host).rglob("headgate-*.zip")}
    assert len(shipped) == 1

    def grown(what: str) -> None:
        """Until there are more rows than now, from before it to after it."""
        before = lake.rows()
        assert before < len(expected), f"all was written before {what}"
        until(f"rows after {what}", lambda: lake.rows() > before + 4_000, lake.worker)

    grown("anything")
    killed: Counter[str] = Counter()
    victim = cluster.executors(HOSTS[0])[0]
    os.kill(victim, signal.SIGKILL)
    killed["executor"] += 1
    grown("the kill of an executor")
    cluster.kill_worker(HOSTS[1])
    killed["worker"] += 1
    grown("the kill of a worker")
    cluster.start_worker(HOSTS[1])
    before = cluster.applications()
    cluster.kill_application()
    killed["application"] += 1
    until("another application", lambda: cluster.applications() > before, lake.worker)
    grown("the kill of the application")
    until("all records", lambda: lake.running() and lake.wrote(len(expected)), lake.worker)
    complete(lake, expected)
    print(f"killed: {dict(killed)}")


@pytest.mark.parametrize("lake", [{"headgate.spark.driver.timeout.ms": "12000"}], indirect=True)
def test_a_driver_that_is_killed_and_one_that_stands_still_give_way_to_another(
    lake: Lake, cluster: Standalone
) -> None:
    """The cluster's executors end with their driver, and the next one gets others."""
    expected = lake.write()
    lake.create(rate=300)
    until("tasks on the hosts", lambda: len(cluster.bodies()) == 2, lake.worker)
    until("rows", lambda: lake.rows() > 0, lake.worker)
    for number in (signal.SIGKILL, signal.SIGSTOP):
        before, applications, bodies = lake.rows(), cluster.applications(), set(cluster.bodies())
        victim = driver(lake.worker)
        os.kill(victim.pid, number)
        until("its end", lambda one=victim: not one.alive(), lake.worker)
        until("another", lambda old=applications: cluster.applications() > old, lake.worker)
        until("rows by it", lambda old=before: lake.rows() > old + 4_000, lake.worker)
        until(
            "the end of its tasks", lambda old=bodies: not old & set(cluster.bodies()), lake.worker
        )
        assert lake.rows() < len(expected), "it was done before"
    assert f"Spark's driver (pid {victim.pid}) has not answered for 12 s and was ended" in (
        lake.worker.log.read_text()
    )
    until("all records", lambda: lake.running() and lake.wrote(len(expected)), lake.worker)
    complete(lake, expected)


@pytest.mark.timeout(900)
def test_tasks_go_on_without_the_master_and_run_again_with_one_that_knows_nothing(
    lake: Lake, cluster: Standalone
) -> None:
    expected = lake.write()
    lake.create(rate=150)
    until("rows", lambda: lake.rows() > 0, lake.worker)
    cluster.kill_master()
    before = lake.rows()
    until("rows without a master", lambda: lake.rows() > before + 4_000, lake.worker)
    assert lake.running()
    before = cluster.applications()
    cluster.start_master()
    cluster.await_workers()
    until("another application", lambda: cluster.applications() > before, lake.worker)
    assert "Spark has lost its executors and gets no others" in lake.worker.log.read_text()
    until("all records", lambda: lake.running() and lake.wrote(len(expected)), lake.worker)
    complete(lake, expected)


@pytest.mark.parametrize("gone", ["a moment", "until Spark is started again"])
def test_all_hosts_are_lost_and_come_back(
    lake: Lake, cluster: Standalone, gone: str, say: Callable[[str], None]
) -> None:
    expected = lake.write()
    lake.create(rate=200)
    until("rows", lambda: lake.rows() > 0, lake.worker)
    before, lost = lake.rows(), cluster.applications()
    for host in HOSTS:
        cluster.kill_worker(host)
    if gone != "a moment":
        until("another application", lambda: cluster.applications() > lost, lake.worker)
    assert not cluster.bodies()
    for host in HOSTS:
        cluster.start_worker(host)
    began = time.monotonic()
    until("rows by the hosts", lambda: lake.rows() > before + 4_000, lake.worker)
    took = time.monotonic() - began
    say(f"{len(HOSTS)} hosts lost; {took:.0f} s from their return to 4,000 more rows")
    until("all records", lambda: lake.running() and lake.wrote(len(expected)), lake.worker)
    complete(lake, expected)
