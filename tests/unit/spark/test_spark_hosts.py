"""How executors on other machines find this one, get its code, and are told apart from it."""

import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate_spark import hosts, skin
from headgate_spark.hosts import HostError, address_for
from headgate_spark.server import CONTEXT_REFUSALS, CONTEXT_STOPPED, ContextWatch, SparkServer
from headgate_spark.shipping import write_archive

SETTING = "headgate.spark.host"


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,512]"])
def test_executors_of_this_machine_call_the_loopback_address(master: str) -> None:
    assert address_for(master, "", SETTING) == "127.0.0.1"


@pytest.mark.parametrize(
    "spark", ["spark://127.0.0.1:7077,other:7077", "k8s://https://127.0.0.1:6443", "sc://127.0.0.1"]
)
def test_others_call_the_address_that_leads_to_the_master(spark: str) -> None:
    assert address_for(spark, "", SETTING) == "127.0.0.1"


def test_what_the_user_says_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert address_for("spark://far:7077", "127.0.0.9", SETTING) == "127.0.0.9"
    with pytest.raises(HostError, match=r"headgate\.spark\.host is 192\.0\.2\.1, expected an addr"):
        address_for("spark://far:7077", "192.0.2.1", SETTING)


def test_a_master_that_leads_nowhere_is_refused_with_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*_: object) -> object:
        raise OSError("Name or service not known")

    monkeypatch.setattr(hosts.socket, "getaddrinfo", unknown)
    with pytest.raises(HostError, match=r"far cannot be reached: Name.*say it by headgate\.spark"):
        address_for("spark://far:7077", "", SETTING)


def test_a_name_that_is_loopback_to_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """YARN's address names no host, and many systems know their own name as 127.0.1.1."""
    monkeypatch.setattr(hosts.socket, "gethostbyname", lambda _: "127.0.1.1")
    with pytest.raises(HostError, match=r"its name \S+ means 127\.0\.1\.1\); say it by headgate"):
        address_for("yarn", "", SETTING)
    monkeypatch.setattr(hosts.socket, "gethostbyname", lambda _: "10.0.0.5")
    assert address_for("yarn", "", SETTING) == "10.0.0.5"


def test_the_archive_has_the_code_and_what_announces_connectors(tmp_path: Path) -> None:
    (tmp_path / "headgate-0.0.1-abc.zip").touch()
    first = write_archive(tmp_path)
    assert list(tmp_path.iterdir()) == [first] == [write_archive(tmp_path)]
    names = zipfile.ZipFile(first).namelist()
    for wanted in (
        "headgate/__init__.py",
        "headgate_spark/daemon.py",
        "headgate_runtime/tasks/main.py",
        "headgate_connectors/directory.py",
    ):
        assert wanted in names
    assert [name for name in names if name.endswith(".dist-info/entry_points.txt")]
    assert not [name for name in names if "__pycache__" in name]


def settings_of(server: SparkServer) -> dict[str, str]:
    command = server._command()
    pairs = [command[at + 1] for at, word in enumerate(command) if word == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_code_is_carried_to_executors_elsewhere_with_the_users_own(tmp_path: Path) -> None:
    conf = {
        "spark.submit.pyFiles": "/opt/mine.zip",
        "spark.files": "/opt/data.txt",
        "spark.executorEnv.PYTHONPATH": "/opt/theirs",
        "spark.pyspark.python": "/opt/python",
    }
    server = SparkServer("spark://far:7077", 2, tmp_path, conf, host="127.0.0.9")
    server._shipped = Path("/x/headgate-1.zip")
    found = settings_of(server)
    assert found["spark.files"] == "/opt/data.txt,/opt/mine.zip,/x/headgate-1.zip"
    path = found["spark.executorEnv.PYTHONPATH"].split(":")
    assert path == ["headgate-1.zip", "../headgate-1.zip", "mine.zip", "../mine.zip", "/opt/theirs"]
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.9"
    assert found["spark.connect.grpc.binding.address"] == "127.0.0.1"
    environment = server._environment(None)
    assert environment["PYSPARK_PYTHON"] == "/opt/python"
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.9"
    assert server.ui is not None and server.ui.startswith("http://127.0.0.9:")
    here = settings_of(SparkServer("local[2]", 2, tmp_path))
    assert "spark.files" not in here and here["spark.driver.host"] == "127.0.0.1"


def counting(first: int, batches: Iterator[Any]) -> Iterator[int]:
    yield from (first + each for each in batches)


def test_the_skin_runs_a_function_of_the_same_version() -> None:
    version = skin.importlib.metadata.version("headgate")
    name = f"{__name__}:counting"
    assert list(skin.run_checked(version, name, (10,), iter([1, 2]))) == [11, 12]


@pytest.mark.parametrize(
    ("has", "words"),
    [("0.0.9", r"has Headgate 0\.0\.9, and the worker has 9\.9"), (None, r"has no Headgate, and")],
)
def test_another_version_is_refused_by_both_names(
    monkeypatch: pytest.MonkeyPatch, has: str | None, words: str
) -> None:
    def version(name: str) -> str:
        if has is None:
            raise skin.importlib.metadata.PackageNotFoundError(name)
        return has

    monkeypatch.setattr(skin.importlib.metadata, "version", version)
    where = rf"the executor on {socket.gethostname()} \({sys.executable}\) "
    with pytest.raises(RuntimeError, match=f"{where}{words}"):
        list(skin.run_checked("9.9", f"{__name__}:counting", (1,), iter([])))


_EXECUTOR = """
import pickle, sys
sys.path.append(sys.argv[1])
for _ in pickle.load(sys.stdin.buffer)(iter([])):
    pass
"""


def test_the_skin_is_read_where_headgate_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark import cloudpickle

    monkeypatch.setattr(skin.importlib.metadata, "version", lambda _: "9.9")
    work = cloudpickle.dumps(skin.on_executors(counting, 1))
    packages = next(part for part in sys.path if part.endswith("site-packages"))
    # Without the site module nobody looks at the file that names our folders.
    command = [sys.executable, "-I", "-S", "-c", _EXECUTOR, packages]
    done = subprocess.run(command, input=work, capture_output=True, check=False)
    assert b"and the worker has 9.9: install headgate==9.9 there" in done.stderr
    assert b"ModuleNotFoundError" not in done.stderr


class _Listener:
    def __enter__(self) -> "_Listener":
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def test_an_application_that_is_gone_is_noticed_though_its_server_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("headgate_spark.server.CONTEXT_LOOK_S", 0.0)
    with _Listener() as driver:
        watch = ContextWatch("127.0.0.1", driver.port)
        watch.begin()
        assert not watch.stopped()
    assert [watch.stopped() for _ in range(CONTEXT_REFUSALS)] == [False, False, True]
    watch.end()  # it is started anew
    assert not watch.stopped()
    watch.begin()  # it took another port
    assert not any(watch.stopped() for _ in range(5))
    assert CONTEXT_STOPPED < 0, "no exit code of a process"


def test_an_application_that_is_gone_is_noticed_by_the_third_look() -> None:
    clock = iter((100.0, 100.5, 101.0, 101.5))
    with _Listener() as driver:
        watch = ContextWatch("127.0.0.1", driver.port, lambda: next(clock))
        watch.begin()
        assert not watch.stopped()
    assert [watch.stopped() for _ in range(3)] == [False, False, True]


def test_a_driver_that_takes_no_connections_has_its_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver that stands still does not accept, and at some time no more fit into the queue."""
    monkeypatch.setattr("headgate_spark.server.CONTEXT_LOOK_S", 0.0)
    with _Listener() as driver:
        watch = ContextWatch("127.0.0.1", driver.port)
        watch.begin()

        def silent(*_given: object) -> socket.socket:
            raise TimeoutError("timed out")

        monkeypatch.setattr("headgate_spark.sessions.socket.create_connection", silent)
        assert not any(watch.stopped() for _ in range(2 * CONTEXT_REFUSALS))
