"""The command ``headgate observe``: finds out what to look at, looks once or repeatedly, and
prints."""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live

from headgate.ports import TransportError
from headgate_runtime.observe.members import findings
from headgate_runtime.observe.reader import ClusterReader
from headgate_runtime.observe.show import render
from headgate_runtime.observe.view import describe

EVERY_S = 2.0
SETTLE_S = 5.0
"""How long a single look waits for the end of a rebalance, in seconds."""
WIDTH = 120
"""Width of lines if there is no terminal."""


_STALE = "as it was before: "


class ObserveError(Exception):
    """The cluster cannot be observed. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ObserveOptions:
    bootstrap_servers: str | None = None
    group: str | None = None
    properties: Path | None = None
    """A worker's properties file."""
    topics: Mapping[str, str] | None = None
    """Topic names given on the command line, under ``config``, ``status``, ``offset``."""
    as_json: bool = False
    follow: bool = False


def run(options: ObserveOptions, out: TextIO = sys.stdout) -> None:
    """Observe a cluster and print it.

    Raises:
        ObserveError: it is not clear what to observe, or the brokers do not answer.
    """
    reader = ClusterReader(_source(options))
    try:
        if options.follow:
            with contextlib.suppress(KeyboardInterrupt), _terminated_as_interrupted():
                _follow(reader, options, out)
        else:
            view = _look(reader, SETTLE_S)
            found = findings(_properties(options), view["group"])
            _print({**view, "findings": [*view["findings"], *found]}, options, _console(out), out)
    finally:
        reader.close()


def _console(out: TextIO) -> Console:
    console = Console(file=out)
    return console if console.is_terminal else Console(file=out, width=WIDTH)


def _look(reader: ClusterReader, patience_s: float = 0.0) -> dict[str, Any]:
    try:
        return describe(reader.look(patience_s))
    except TransportError as error:
        raise ObserveError(str(error)) from None


def _print(view: Mapping[str, Any], options: ObserveOptions, console: Console, out: TextIO) -> None:
    if options.as_json:
        print(json.dumps(view, ensure_ascii=False), file=out, flush=True)
    else:
        console.print(render(view))


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Make SIGTERM end the command as Ctrl-C does, so that a terminal gets its cursor back."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _follow(reader: ClusterReader, options: ObserveOptions, out: TextIO) -> None:
    """Print views until Ctrl-C or SIGTERM. A terminal is redrawn. Elsewhere a new view is printed
    whenever something has changed. Brokers that answered once are waited for if they stop
    answering."""
    console = _console(out)
    view = _look(reader)
    if options.as_json or not console.is_terminal:
        shown: Mapping[str, Any] | None = None
        while True:
            if view != shown:
                _print(view, options, console, out)
                shown = view
            view = _again(reader, view)
    live = Live(render(view), console=console, screen=False, auto_refresh=False)
    try:
        live.start(refresh=True)  # hides the cursor: an interruption must show it again
        while True:
            view = _again(reader, view)
            live.update(render(view), refresh=True)
    finally:
        live.stop()


def _again(reader: ClusterReader, before: Mapping[str, Any]) -> dict[str, Any]:
    time.sleep(EVERY_S)
    try:
        return describe(reader.look())
    except TransportError as error:
        if before["findings"][:1] and before["findings"][0].startswith(_STALE):
            return dict(before)  # the first failure's message; later ones are no news
        return {**before, "findings": [f"{_STALE}{error}"]}


def _source(options: ObserveOptions) -> Any:
    from headgate_kafka.clients.settings import ClientSettingsError
    from headgate_kafka.logs.discovery import TopicsNotFoundError
    from headgate_kafka.observer import open_observer

    properties = _properties(options)
    try:
        return open_observer(properties, warn=lambda line: print(line, file=sys.stderr))
    except (TopicsNotFoundError, ClientSettingsError, TransportError) as error:
        raise ObserveError(str(error)) from None


def _properties(options: ObserveOptions) -> dict[str, str]:
    """Return the worker's own file, overridden by the command line."""
    from headgate_runtime.config.properties import PropertiesError, read_properties
    from headgate_runtime.config.worker_file import with_exactly_once

    found: dict[str, str] = {}
    if options.properties is not None and options.properties.suffix == ".toml":
        raise ObserveError(
            f"{options.properties} is a file of headgate up; expected the properties file of a "
            "worker on Kafka. A running headgate up is shown by headgate status"
        )
    if options.properties is not None:
        try:
            found.update(with_exactly_once(read_properties(options.properties).values))
        except PropertiesError as error:
            raise ObserveError(str(error)) from None
    if options.bootstrap_servers is not None:
        found["bootstrap.servers"] = options.bootstrap_servers
    if options.group is not None:
        found["group.id"] = options.group
    for kind, name in (options.topics or {}).items():
        found[f"{kind}.storage.topic"] = name
    for key, option in (("bootstrap.servers", "--bootstrap-servers"), ("group.id", "--group")):
        if not found.get(key):
            raise ObserveError(
                f"which cluster? Expected {option}, or the file of a worker that has {key}: "
                "headgate observe worker.properties"
            )
    return found
