"""``headgate doctor FILE.properties``: what would go wrong with this worker, found before it does.

Each check says what was seen, and a failed one what to do. Nothing is written, except the epochs of
transactional ids if the group has no members.
"""

import errno
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Protocol, TextIO

from rich.console import Console
from rich.text import Text

from headgate.connector.config_providers import ConfigProviderError
from headgate.ports import RefusedError, TransportError
from headgate.topics.config_events import Config
from headgate.wire import WireError
from headgate_runtime.config.transformer import WorkerConfigTransformer
from headgate_runtime.config.worker_file import WorkerFile, read_worker_file
from headgate_runtime.observe.command import SETTLE_S
from headgate_runtime.observe.members import ABOUT_ADDRESS, tried_members
from headgate_runtime.observe.reader import ClusterReader
from headgate_runtime.observe.view import Look, describe
from headgate_runtime.plugins.find import PluginError, find_connector
from headgate_runtime.plugins.look import SETTING, allow_modules
from headgate_runtime.tasks.select import is_planned
from headgate_runtime.up.observe import kind_of


class Outcome(StrEnum):
    GOOD = "ok"
    NOTE = "note"
    """Nothing fails, but it is worth knowing, or could not be tried."""
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Check:
    outcome: Outcome
    about: str
    text: str


CLOCKS_S: Final = 300
"""Most seconds by which the clocks of two workers may differ:
`headgate_grpc.internal.signing.SKEW_MS`."""
CLOCKS_NEAR_S: Final = 30
GRANT: Final = "Grant it with: "
LATER: Final = "will be created at the first start"
_STYLES = {Outcome.GOOD: "green", Outcome.NOTE: "yellow", Outcome.BAD: "bold red"}


class Tried(Protocol):
    """A permission and the outcome of its check, as in `headgate_kafka.admin.permissions`."""

    permission: Any
    verdict: Any
    reason: str
    grant: str


def run(path: str, out: TextIO = sys.stdout) -> int:
    """Print every check. Return the exit code: 1 if one is bad.

    Raises:
        PropertiesError, WorkerFileError: the file itself is refused.
    """
    console = Console(file=out)
    bad = 0
    for check in checks(path):
        bad += check.outcome is Outcome.BAD
        mark = Text(f"{check.outcome:<5}", style=_STYLES[check.outcome])
        line = Text.assemble(mark, (f"{check.about}: ", "bold"), check.text)
        console.print(line, soft_wrap=not console.is_terminal)  # a line each, for grep
    console.print(f"{bad} to mend" if bad else "Nothing is to be mended.")
    return 1 if bad else 0


def checks(path: str) -> Iterator[Check]:
    """Yield every check as it is made. Checks of the cluster end if brokers do not answer."""
    file = read_worker_file(path)
    allow_modules(file.settings[SETTING])
    for warning in file.warnings:
        yield Check(Outcome.NOTE, "file", warning)
    yield from _runner(file.settings["headgate.task.runner"])
    look = yield from _kafka(file)
    yield from _rest(file.properties, look)
    if look is not None:
        yield from _members(file.properties, describe(look)["group"])


def _kafka(file: WorkerFile) -> Generator[Check, None, Look | None]:
    """Yield the checks of the cluster. Return what was seen of it."""
    from headgate_kafka.admin.doctor import open_doctor
    from headgate_kafka.clients.settings import ClientSettingsError

    look = None
    try:
        doctor = open_doctor(file.properties, warn=lambda _line: None)
    except ClientSettingsError as error:
        yield Check(Outcome.BAD, "file", file.hide(str(error)))
        return None
    try:
        look = yield from _on_kafka(doctor, file.properties)
        if look is not None:
            yield from _cluster(doctor, look, file.transformer)
    except TransportError as error:
        yield Check(Outcome.BAD, "brokers", str(error))
    finally:
        doctor.close()
        file.transformer.close()
    return look


def _runner(name: str) -> Iterator[Check]:
    if name != "spark":
        yield Check(Outcome.GOOD, "runner", f"tasks run on {name}")
        return
    from headgate_spark.server import ServerError, check_java

    try:
        java = check_java()
    except ServerError as error:
        yield Check(Outcome.BAD, "runner", str(error))
        return
    yield Check(Outcome.GOOD, "runner", f"tasks run on Spark, with {java or 'the java of PATH'}")


def _rest(worker: Mapping[str, str], look: Look | None) -> Iterator[Check]:
    """Check whether REST could be served, here and now. If this worker runs already, it has the
    port."""
    from headgate_rest import ListenError, RestSettings, try_to_listen, url_of

    try:
        settings = RestSettings.of(worker)
    except ValueError as error:
        yield Check(Outcome.BAD, "REST", str(error))
        return
    url = url_of(settings)
    try:
        try_to_listen(settings)
    except ListenError as error:
        why = f"{error.key}: {error.strerror}"
        # If this worker had the ports of admin.listeners, it would have had those of listeners
        # first.
        if error.errno != errno.EADDRINUSE or error.key != "listeners":
            yield Check(Outcome.BAD, "REST", why)
            return
        urls = _urls(look)
        if url in urls:
            text = f"{url} is a member of the group: this worker runs, and has the port"
            yield Check(Outcome.NOTE, "REST", text)
        elif None in urls:
            text = f"{why}. Whether by this worker, {url}, could not be seen"
            yield Check(Outcome.NOTE, "REST", text)
        else:
            text = f"{why}. No member of the group is {url}: another process has the port"
            yield Check(Outcome.BAD, "REST", text)
        return
    yield Check(Outcome.GOOD, "REST", f"it can listen as {url}")


def _urls(look: Look | None) -> list[str | None]:
    """Return the URLs of the group's members, and None for each member that was not seen."""
    if look is None:
        return [None]
    return [member["url"] for member in describe(look)["group"]["members"]]


def _members(worker: Mapping[str, str], group: Mapping[str, Any]) -> Iterator[Check]:
    """Yield one check for all members that answer, and one for each that does not."""
    try:
        tried = tried_members(worker, group)
    except (ValueError, OSError):
        return  # a fault of this worker's own settings, which another check reports
    answer = [each.url for each in tried if each.reason is None]
    if answer:
        yield Check(Outcome.GOOD, "members", f"{', '.join(answer)}: HTTP is answered")
    for each in tried:
        if each.reason is not None:
            text = ABOUT_ADDRESS.format(each.url, each.reason)
            yield Check(Outcome.BAD, f"{each.role} {each.name}", text)
        elif abs(each.ahead_s or 0) > CLOCKS_NEAR_S:
            yield _clock(each.url, f"{each.role} {each.name}", each.ahead_s or 0)


def _clock(url: str, about: str, ahead_s: float) -> Check:
    way = "ahead of" if ahead_s > 0 else "behind"
    text = f"the clock of {url} is {abs(ahead_s):.0f} s {way} that of this machine"
    if abs(ahead_s) <= CLOCKS_S:
        return Check(Outcome.NOTE, about, f"{text}; set both, for example with NTP")
    text = f"{text}: calls between the two by gRPC are refused (headgate.grpc.internal)"
    return Check(Outcome.BAD, about, f"{text}. Expected at most {CLOCKS_S} s; set both clocks")


def _on_kafka(doctor: Any, worker: Mapping[str, str]) -> Generator[Check, None, Look | None]:
    """Yield the checks of the brokers. Return what was seen of the cluster, if anything."""
    brokers = doctor.brokers()
    yield Check(
        Outcome.GOOD, "brokers", f"{', '.join(brokers.addresses)}, cluster {brokers.cluster_id}"
    )
    ready, made, absent = True, list[str](), set[str]()
    for topic, fault, there in doctor.internal_topics():
        ready = ready and fault is None and there
        if not there:
            absent.add(topic.name)
        if fault is None and not there:
            made.append(topic.name)
            continue
        outcome = Outcome.GOOD if fault is None else Outcome.BAD
        yield Check(outcome, topic.key, f"{topic.name}: {fault or 'as workers need it'}")
    if made:
        names = ", ".join(dict.fromkeys(made))
        yield Check(Outcome.GOOD, "internal topics", f"{names}: {LATER}")
    principal = f"permissions of {worker.get('client.id') or 'the worker'}"
    yield from _permissions(principal, doctor.worker_rights, absent)
    if not ready:
        return None
    try:
        return _look(worker)
    except TransportError as error:
        yield Check(Outcome.NOTE, "cluster", f"it could not be looked at: {error}")
        return None


def _cluster(doctor: Any, look: Look, transformer: WorkerConfigTransformer) -> Iterator[Check]:
    names = [*look.state.connector_names()]
    yield Check(
        Outcome.GOOD,
        "cluster",
        f"group {look.group.group} is {look.group.state} with {len(look.group.members)} members, "
        f"{len(names)} connectors",
    )
    for finding in describe(look)["findings"]:
        yield Check(Outcome.NOTE, "cluster", finding)
    configs: dict[str, Config] = {}
    hides: dict[str, Callable[[str], str]] = {}
    for name in names:
        try:
            resolved = transformer.resolve(look.state.entries[name].config or {}, name)
        except ConfigProviderError as error:
            yield Check(Outcome.BAD, f"config of connector {name}", str(error))
            continue
        configs[name], hides[name] = resolved.config, resolved.hide
    for name, config in configs.items():
        tasks = max(len(look.state.tasks(name)), 1)
        # After a shrink, more producers must be fenced than there are tasks.
        producers = max(tasks, look.state.entries[name].fencing_count or 0)
        kind = "planned sink" if _plans_batches(config) else kind_of(config)
        rights = doctor.connector_rights(name, config, kind, tasks, producers)
        for who, ask in rights:
            for check in _permissions(f"permissions of {who}", ask):
                yield replace(check, text=hides[name](check.text))
    sources = {name: config for name, config in configs.items() if kind_of(config) == "source"}
    for name, config in sources.items():
        fault = doctor.own_topic_fault(name, config)
        if fault is not None:
            about = f"offsets.storage.topic of connector {name}"
            yield Check(Outcome.BAD, about, ": ".join(fault))
    for stale in doctor.stale_own_topics(sources):
        yield Check(Outcome.BAD, "offsets", stale)


def _plans_batches(config: Config) -> bool:
    """Return whether the tasks plan batches, as far as the class is installed here."""
    try:
        found = find_connector(config.get("connector.class") or "")
    except PluginError:
        return False
    return is_planned(getattr(found, "TASK", None))


def _permissions(
    about: str, ask: Callable[[], list[Tried]], absent: Collection[str] = ()
) -> Iterator[Check]:
    """Yield one check for all granted permissions, and one for each that is not. `absent` has
    internal topics that do not exist yet. Permissions on those cannot be tried before."""
    try:
        tried = ask()
    except RefusedError as error:
        yield Check(Outcome.BAD, about, str(error))
        return
    except TransportError as error:
        yield Check(Outcome.NOTE, about, f"could not be tried: {error}")
        return
    granted, later = 0, 0
    for one in tried:
        if one.verdict == "not tried" and one.permission.name in absent:
            later += 1
            continue
        wanted, reason = one.permission, f" ({one.reason})" if one.reason else ""
        if one.verdict == "granted":
            granted += 1
        elif one.verdict == "denied":
            outcome = Outcome.NOTE if wanted.optional else Outcome.BAD
            yield Check(
                outcome, about, f"denied: {wanted}, {wanted.purpose}{reason}. {GRANT}{one.grant}"
            )
        else:
            yield Check(Outcome.NOTE, about, f"not tried: {wanted}, {wanted.purpose}{reason}")
    count = len(tried) - later
    if count and not granted:
        return  # a line for each has said so: none of it is "ok"
    text = f"{granted} of {count} are granted" if tried else "none is known to be needed"
    if later:
        text += f"; {later} on topics that are not there yet cannot be tried"
    yield Check(Outcome.GOOD, about, f"{text} (docs/run/permissions.md)")


def _look(worker: Mapping[str, str]) -> Look:
    from headgate_kafka.observer import KafkaObserver

    reader = ClusterReader(KafkaObserver(worker, lambda _line: None))
    try:
        return reader.look(SETTLE_S)
    except WireError as error:
        raise TransportError(str(error)) from None
    finally:
        reader.close()
