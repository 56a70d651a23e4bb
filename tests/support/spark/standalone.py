"""A Spark standalone cluster on this machine that looks like several hosts.

Each worker has an address and a folder of its own, and runs without the environment of this
process. The executors' Python has the packages on which Headgate depends, but not Headgate.
"""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from support.commands.processes import Process, descendants

from headgate_spark.guard import Guarded
from headgate_spark.server import check_java, free_port

START_S = 120.0
MASTER_HOST = "127.0.0.1"
HOSTS = ("127.0.0.2", "127.0.0.3")
_DAEMON = "-m headgate_spark.daemon"
CORES, MEMORY = 12, "2g"


def bare_python(folder: Path) -> Path:
    """Make a Python with the packages of this one, but without Headgate."""
    packages = next(Path(part) for part in sys.path if part.endswith("site-packages"))
    here = folder / "packages"
    here.mkdir(parents=True)
    for each in packages.iterdir():
        if "headgate" not in each.name and not each.name.endswith(".pth"):
            (here / each.name).symlink_to(each)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (own,) = (folder / "venv").glob("lib/python*/site-packages")
    (own / "packages.pth").write_text(f"{here}\n")
    return folder / "venv" / "bin" / "python"


class Standalone:
    """A master and its workers.

    Args:
        folder: for the whole cluster. Each worker works in a folder below it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._web_port = free_port(), free_port()
        self.master_url = f"spark://{MASTER_HOST}:{self.port}"
        self._master: Guarded | None = None
        self._workers: dict[str, Guarded] = {}

    def start(self) -> None:
        """Start the cluster, and return when the master knows all workers."""
        self.start_master()
        for host in HOSTS:
            self.start_worker(host)

    def start_master(self) -> None:
        """Start a master that remembers nothing of the masters before it."""
        before = self.log("master").count("Starting Spark master")
        self._master = self._run(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", MASTER_HOST, "--port", str(self.port), "--webui-port", str(self._web_port)),
        )
        said = "Starting Spark master"
        self._wait("the master", lambda: self.log("master").count(said) > before)

    def kill_master(self) -> None:
        """Send SIGKILL to the master. Its workers and their executors live on."""
        assert self._master is not None
        self._master.end()
        self._master = None

    def await_workers(self) -> None:
        """Return when a restarted master knows all workers."""
        said = "Registering worker"
        since = self.log("master").rindex("Starting Spark master")
        self._wait("workers", lambda: self.log("master")[since:].count(said) >= len(self._workers))

    def start_worker(self, host: str) -> None:
        before = self.log("master").count("Registering worker")
        work = self.folder / f"work-{host}"
        work.mkdir(exist_ok=True)
        self._workers[host] = self._run(
            host,
            "org.apache.spark.deploy.worker.Worker",
            *("--host", host, "--webui-port", str(free_port()), "--work-dir", str(work)),
            *("--cores", str(CORES), "--memory", MEMORY, self.master_url),
        )
        known = f"worker {host}"
        self._wait(known, lambda: self.log("master").count("Registering worker") > before)

    def kill_worker(self, host: str) -> None:
        """Send SIGKILL to the worker and its executors, as if the host were gone."""
        self._workers.pop(host).end()

    def has_worker(self, host: str) -> bool:
        """Return whether `host` has a worker that was started and not killed since."""
        return host in self._workers

    def work(self, host: str) -> Path:
        """Return the folder in which executors of `host` run."""
        return self.folder / f"work-{host}"

    def executors(self, host: str) -> list[int]:
        """Return the process ids of the JVMs that run tasks on that host."""
        return [each.pid for each in self._below(host) if "CoarseGrainedExecutor" in each.command]

    def bodies(self) -> dict[int, str]:
        """Return the process ids of the tasks that run on the cluster, with their hosts."""
        found: dict[int, str] = {}
        for host in self._workers:
            daemons = [each for each in self._below(host) if _DAEMON in each.command]
            pids = {each.pid for each in daemons}
            found |= {each.pid: host for each in daemons if each.parent in pids}
        return found

    def _below(self, host: str) -> list[Process]:
        return descendants(self._workers[host].guard_pid)

    def applications(self) -> int:
        """Return the number of applications that have registered with the master."""
        return self.log("master").count("Registered app")

    def kill_application(self) -> None:
        """End the running application, as a click on the master's page does."""
        (name,) = re.findall(r"Registered app .* with ID (\S+)", self.log("master"))[-1:]
        browser = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        page = f"http://{MASTER_HOST}:{self._web_port}"
        with browser.open(page, timeout=30) as answer:
            (token,) = set(re.findall(r'name="csrfToken" value="(\w+)"', answer.read().decode()))
        fields = {"id": name, "terminate": "true", "csrfToken": token}
        with browser.open(f"{page}/app/kill/", urlencode(fields).encode(), timeout=30):
            pass

    def log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def close(self) -> None:
        for process in (*self._workers.values(), self._master):
            if process is not None:
                process.end()

    def _run(self, name: str, java_class: str, *arguments: str) -> Guarded:
        import pyspark

        home = Path(pyspark.__file__).parent
        host = name if name in HOSTS else MASTER_HOST
        environment = {
            "PATH": os.environ["PATH"],
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self.folder / f"scratch-{name}"),
            "SPARK_DAEMON_MEMORY": "256m",
            # The guard is ours; what it starts gets no more than this.
            "PYTHONPATH": str(Path(sys.modules[Guarded.__module__].__file__ or "").parents[1]),
        }
        if (java_home := check_java()) is not None:
            environment["JAVA_HOME"] = java_home
        command = ["env", "-u", "PYTHONPATH", str(home / "bin" / "spark-class"), java_class]
        folder = self.folder / f"run-{name}"
        folder.mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            return Guarded([*command, *arguments], folder, log, environment)

    def _wait(self, what: str, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not true():
            logs = "\n".join(self.log(name)[-2000:] for name in ("master", *self._workers))
            processes = (self._master, *self._workers.values())
            lives = all(process is None or process.poll() is None for process in processes)
            assert lives and time.monotonic() < deadline, f"{what} is not there:\n{logs}"
            time.sleep(0.1)
