"""A broker for a person: ``make kafka``. Runs until Ctrl-C; its data stays for the next time."""

import argparse
import contextlib
import fcntl
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import javaproperties

from local_kafka.broker import Broker, version
from local_kafka.jars import JarsError, folder
from local_kafka.java_connect import defaults
from local_kafka.jvm import JvmError

WORKER_PORT = 8083
GROUP = "connect-cluster"


class RunningError(Exception):
    """Another process runs a broker in the folder. The text is the broker's address."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make kafka", description=__doc__)
    parser.add_argument("--port", type=int, default=9092, help="where clients connect")
    parser.add_argument("--folder", type=Path, default=Path(".kafka"), help="for data and log")
    options = parser.parse_args(arguments)
    place: Path = options.folder
    try:
        with _only_one(place, f"127.0.0.1:{options.port}"):
            return _serve(place, options.port)
    except RunningError as error:
        print(f"kafka: a broker runs already on {error}, with its data in {place}.")
        print("kafka: Ctrl-C where it was started stops it.")
        return 0
    except (JarsError, JvmError) as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1


def _serve(place: Path, port: int) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores SIGINT
        signal.signal(number, _interrupt)
    if not folder().is_dir():
        print("kafka: fetching the jars of Apache Kafka, once for this user", flush=True)
    broker = Broker(place, port=port)
    print(f"kafka: starting Kafka {version()}", flush=True)
    try:
        broker.start()
        print(_greeting(broker, place, _worker_file(broker, place)), flush=True)
        while broker.jvm.running:
            time.sleep(0.2)
    except KeyboardInterrupt:
        print("\nkafka: stopping", flush=True)
        broker.stop()
        print(f"kafka: stopped; the data is in {place} for the next start")
        return 0
    print(f"kafka: the broker ended{broker.jvm.tail()}", file=sys.stderr)
    broker.kill()
    return 1


def _worker_file(broker: Broker, place: Path) -> Path:
    """Write a properties file for a Connect worker, Headgate's or Java's, on `broker`."""
    file = place / "connect-distributed.properties"
    url = f"http://127.0.0.1:{WORKER_PORT}"
    settings = {"bootstrap.servers": broker.address, "group.id": GROUP, **defaults(GROUP, url)}
    settings["headgate.task.runner"] = "process"  # ready in seconds; Java does not know the key
    note = "Written at each start of the broker: copy it before you change it."
    file.write_text(javaproperties.dumps(settings, comments=note, timestamp=False))
    return file


def _greeting(broker: Broker, place: Path, worker_file: Path) -> str:
    programs = Path(sys.executable).parent
    with contextlib.suppress(ValueError):
        programs = programs.relative_to(Path.cwd())
    python, headgate = programs / "python", programs / "headgate"
    address = broker.address
    return f"""\
kafka: ready on {address}, one node, no login; data and log in {place}
  a worker       {headgate} worker {worker_file}
  topics         {python} -m kafka.admin -b {address} topics list
  write          {python} -m kafka.producer -b {address} -t TOPIC
  read           {python} -m kafka.consumer -b {address} -t TOPIC -g GROUP
  tests on it    HEADGATE_KAFKA={address} make test
  begin anew     rm -r {place}
kafka: Ctrl-C stops it"""


@contextlib.contextmanager
def _only_one(place: Path, address: str) -> Iterator[None]:
    """Hold a lock on the folder. The system releases it when the process ends in any way.

    Raises:
        RunningError: another process holds the lock.
    """
    place.mkdir(parents=True, exist_ok=True)
    with (place / "running").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise RunningError(file.read()) from None
        file.truncate(0)
        file.write(address)
        file.flush()
        yield


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
