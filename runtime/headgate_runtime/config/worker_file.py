"""The properties file of a worker: read, checked as a whole, and its keys told apart.

Every file that Kafka Connect takes is accepted. Keys that only the JVM uses and unknown keys are
named in one warning and left out. Only our keys, which begin with ``headgate.``, must be spelled
right. References in the file are resolved as it is read, by the config providers that it names.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headgate.connector.config_providers import ConfigProviderError, HiddenValues
from headgate_runtime.config.parsers import brokers
from headgate_runtime.config.properties import Properties, read_properties
from headgate_runtime.config.providers import PREFIX as PROVIDER_PREFIX
from headgate_runtime.config.providers import open_providers, unused_keys
from headgate_runtime.config.settings import (
    CONVERTER_PREFIXES,
    DISTRIBUTED,
    KEYS,
    STANDALONE,
    SettingsError,
    WorkerSettings,
    keys_of,
)
from headgate_runtime.config.transformer import WorkerConfigTransformer

OWN_PREFIX = "headgate."
CLIENT_PREFIXES = ("producer.", "consumer.", "admin.")
TOPIC_PREFIXES = ("config.storage.", "offset.storage.", "status.storage.")
LISTENER_PREFIXES = ("listeners.https.", "admin.listeners.https.")
SERVERS = "bootstrap.servers"
NEAR = 0.85
"""Similarity from which a key counts as misspelt. Unused keys of Connect are less similar:
``offset.flush.timeout.ms`` is not meant for ``offset.flush.interval.ms``."""
EXACTLY_ONCE_KEY = "exactly.once.source.support"
EXACTLY_ONCE_ALIAS = "exactly.once.source.enabled"
"""KIP-618's first name of the key: true or false."""


class WorkerFileError(Exception):
    """The file is refused. `problems` are whole lines for the user."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True)
class WorkerFile:
    path: str
    properties: Mapping[str, str]
    """All keys that Kafka clients, converters and topics may need, with aliases and references
    resolved. Config providers' own keys are left out: they are no business of tasks."""
    settings: WorkerSettings
    warnings: tuple[str, ...]
    kind: str = DISTRIBUTED
    transformer: WorkerConfigTransformer = field(default_factory=WorkerConfigTransformer)
    """Resolver of references in connector configs, with the file's config providers."""
    hide: Callable[[str], str] = str
    """Function that hides the values of the file's references in a text."""


def read_worker_file(path: str, kind: str = DISTRIBUTED) -> WorkerFile:
    """Read and check a worker's properties file.

    Args:
        kind: `DISTRIBUTED` or `STANDALONE`.

    Raises:
        PropertiesError: it cannot be read.
        WorkerFileError: it is wrong. The error has all problems.
    """
    return check_worker_file(read_properties(path), kind)


def check_worker_file(file: Properties, kind: str) -> WorkerFile:
    """Check a file that was read, as `read_worker_file` does."""
    if file.file.endswith(".toml"):
        what = "looks like a pipeline file, expected a worker's properties"
        raise WorkerFileError([f"{file.file}: {what}; headgate up {file.file} runs a pipeline"])
    from headgate_kafka.admin.topics import ignored_keys
    from headgate_kafka.clients.settings import java_only, understood, understood_keys

    problems: dict[str, str] = {}
    warnings: list[str] = []
    values, hide, transformer = _with_providers(file.values, problems)
    given = _resolved(values, problems, warnings)
    known = keys_of(kind)
    settings: dict[str, str] = {}
    unused = [key for key in java_only(given) if key not in known]
    unused += [*ignored_keys(given), *unused_keys(values)]
    unknown: list[str] = []
    for key, value in given.items():
        if key in known or key.startswith(CONVERTER_PREFIXES):
            settings[key] = value
        elif key.startswith(OWN_PREFIX):
            problems[key] = _unknown_own(key, known, kind)
        elif key.startswith(CLIENT_PREFIXES) and key.endswith("." + SERVERS):
            _check_servers(key, value, problems)
        elif not (_passed_on(key) or understood(key) or key in unused):
            unknown.append(key)
    misspelt = _misspelt(unknown, {*known, *filter(understood, understood_keys())})
    if misspelt:
        meant = ", ".join(f"{key} (did you mean {near}?)" for key, near in misspelt.items())
        warnings.append(f"{file.file}: unknown, and not used: {meant}")
    unused += [key for key in unknown if key not in misspelt]
    if unused:
        warnings.append(f"{file.file}: these keys are not used here: {', '.join(sorted(unused))}")
    if file.repeated:
        warnings.append(
            f"{file.file}: more than once, the last one counts: {', '.join(file.repeated)}"
        )
    parsed = _parsed(settings, kind, problems)
    for key in problems.keys() - given.keys():
        if near := difflib.get_close_matches(key, (*unused, *misspelt), n=1, cutoff=0.8):
            problems[key] += f" Is {near[0]} meant for it?"
    if problems or parsed is None:
        transformer.close()
        raise WorkerFileError(
            hide(f"{file.place(key)}: {key}: {text}") for key, text in _in_order(file, problems)
        )
    return WorkerFile(file.file, given, parsed, tuple(warnings), kind, transformer, hide)


def _with_providers(
    given: Mapping[str, str], problems: dict[str, str]
) -> tuple[dict[str, str], Callable[[str], str], WorkerConfigTransformer]:
    """Resolve the references in the file. Return its values, a function that hides them in texts,
    and the transformer for the references of connectors.

    The transformer's providers get params with references resolved. The file itself is resolved by
    providers that got its raw params. Source: AbstractConfig.resolveConfigVariables,
    Worker.initConfigTransformer.
    """
    for_file = WorkerConfigTransformer(open_providers(given, problems))
    values: dict[str, str] = {}
    found: dict[str, str] = {}
    for key, value in given.items():
        try:
            one = for_file.resolve({key: value}, key)
        except ConfigProviderError as error:
            problems[key] = str(error)
            values[key] = value
            continue
        values[key] = one.config[key] or ""
        found.update(one.found)
    for_file.close()
    transformer = WorkerConfigTransformer(open_providers(values, {} if problems else problems))
    return values, HiddenValues(found.items()).hide, transformer


def _resolved(
    values: Mapping[str, str], problems: dict[str, str], warnings: list[str]
) -> dict[str, str]:
    """Return the values under the names of Connect 4, without the keys of config providers."""
    given = {key: text for key, text in values.items() if not key.startswith(PROVIDER_PREFIX)}
    if given.get("connect.protocol", "").strip().lower() == "cooperative":
        warnings.append("connect.protocol=cooperative: taken for sessioned, its newest version")
        given["connect.protocol"] = "sessioned"
    alias = given.pop(EXACTLY_ONCE_ALIAS, None)
    if alias is None:
        return given
    meant = {"true": "enabled", "false": "disabled"}.get(alias.strip().lower())
    if meant is None:
        problems[EXACTLY_ONCE_ALIAS] = f"{alias!r} is neither true nor false"
    elif given.get(EXACTLY_ONCE_KEY, meant).strip().lower() != meant:
        problems[EXACTLY_ONCE_ALIAS] = (
            f"{alias}, but {EXACTLY_ONCE_KEY} is {given[EXACTLY_ONCE_KEY]}; give that one alone"
        )
    else:
        warnings.append(f"{EXACTLY_ONCE_ALIAS}={alias}: taken for {EXACTLY_ONCE_KEY}={meant}")
        given[EXACTLY_ONCE_KEY] = meant
    return given


def with_exactly_once(values: Mapping[str, str]) -> dict[str, str]:
    """Return a file's values as a worker takes them. They always have
    `exactly.once.source.support`, which the file may give by its alias or leave out."""
    given = _resolved(values, {}, [])
    return {EXACTLY_ONCE_KEY: "disabled", **given}


def _unknown_own(key: str, known: Iterable[str], kind: str) -> str:
    if key in KEYS:
        other = STANDALONE if kind == DISTRIBUTED else DISTRIBUTED
        return f"is not for {kind} workers, only for {other} ones or pipeline files"
    # Without the common prefix, which would make any two keys similar.
    own = [name.removeprefix(OWN_PREFIX) for name in known if name.startswith(OWN_PREFIX)]
    near = difflib.get_close_matches(key.removeprefix(OWN_PREFIX), own, n=1, cutoff=0.6)
    if near:
        return f"unknown key; did you mean {OWN_PREFIX}{near[0]}?"
    return f"unknown key; there are {', '.join(OWN_PREFIX + name for name in sorted(own))}"


def _misspelt(unknown: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return unknown keys that are close to a known key -> that key. Keys for the other kind of
    worker count as spelt right."""
    candidates = sorted(known)
    near = {
        key: difflib.get_close_matches(key, candidates, n=1, cutoff=NEAR)
        for key in sorted(unknown)
        if key not in KEYS
    }
    return {key: found[0] for key, found in near.items() if found}


def _check_servers(key: str, value: str, problems: dict[str, str]) -> None:
    try:
        if value.strip():
            brokers(value)
    except ValueError as error:
        problems[key] = str(error)


def _passed_on(key: str) -> bool:
    prefixes = (*CLIENT_PREFIXES, *TOPIC_PREFIXES, *LISTENER_PREFIXES)
    return key.startswith(prefixes)


def _parsed(
    settings: Mapping[str, str], kind: str, problems: dict[str, str]
) -> WorkerSettings | None:
    try:
        return WorkerSettings.parse(settings, kind)
    except SettingsError as error:
        problems.update({key: text for key, text in error.problems.items() if key not in problems})
        return None


def _in_order(file: Properties, problems: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(problems.items(), key=lambda item: (file.lines.get(item[0], 0), item[0]))
