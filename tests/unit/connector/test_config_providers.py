"""References to config providers: laws, the messages of a failing provider, and hidden values."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.connector.config_providers import (
    ConfigProvider,
    ConfigProviderError,
    HiddenValues,
    references,
    reverse_transform,
    transform,
)

PIECES = ["${", "}", ":", "$", "{", "a", "b", "p", " ", "\n", "${p:a}", "${p:x:a}", "${q:x:b}"]
VALUES = st.none() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
CONFIGS = st.dictionaries(st.sampled_from(["k", "l", "m"]), VALUES)
SECRETS = st.dictionaries(
    st.tuples(st.sampled_from(["", "x"]), st.sampled_from(["a", "b"])),
    st.sampled_from(["", "s3cr3t", "${p:x:b}", "}", "\\1$2"]),
)


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Known(ConfigProvider):
    def __init__(self, values: Mapping[tuple[str, str], str]) -> None:
        self.values = values
        self.asked: list[tuple[str, frozenset[str]]] = []

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        self.asked.append((path, frozenset(keys)))
        return {key: self.values[path, key] for key in keys if (path, key) in self.values}


class Raising(ConfigProvider):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        raise self.error


@unhurried
@given(CONFIGS, SECRETS)
def test_each_reference_becomes_what_it_stands_for_and_nothing_else_changes(
    config: Mapping[str, str | None], secrets: Mapping[tuple[str, str], str]
) -> None:
    provider = Known(secrets)
    done = transform(config, {"p": provider})
    assert done.config.keys() == config.keys()
    for key, value in config.items():
        if value is None:
            assert done.config[key] is None
            continue
        rest, expected = value, ""
        for reference in references(value):
            before, _, rest = rest.partition(reference.text)
            known = secrets.get((reference.path, reference.key))
            answered = reference.provider == "p" and known is not None
            expected += before + (known if answered and known is not None else reference.text)
        assert done.config[key] == expected + rest
    assert len(provider.asked) == len({path for path, _ in provider.asked})


@unhurried
@given(CONFIGS)
def test_without_providers_nothing_changes(config: Mapping[str, str | None]) -> None:
    assert transform(config, {}).config == config


@unhurried
@given(CONFIGS, SECRETS)
def test_task_configs_that_echo_the_connectors_config_are_logged_as_users_wrote_it(
    config: Mapping[str, str | None], secrets: Mapping[tuple[str, str], str]
) -> None:
    resolved = transform(config, {"p": Known(secrets)}).config
    assert reverse_transform(config, resolved) == config


@unhurried
@given(CONFIGS, st.text("s3cr3t-x", min_size=4, max_size=20))
def test_nothing_secret_is_left_where_it_is_hidden(
    config: Mapping[str, str | None], secret: str
) -> None:
    done = transform(config, {"p": Known({("", "a"): secret, ("x", "a"): secret})})
    hide = HiddenValues(done.found.items()).hide
    for key, value in done.config.items():
        if any(reference.text in done.found for reference in references(config[key])):
            assert value is not None
            assert secret not in hide(f"login as {value}!")


def test_hidden_whole_before_parts_and_short_ones_where_they_stand_alone() -> None:
    hide = HiddenValues(
        [("${p:one}", "pass"), ("${p:two}", "password"), ("${p:n}", "7"), ("${p:f}", "line\n")]
    ).hide
    assert hide("a password, a pass") == "a ${p:two}, a ${p:one}"
    assert hide("17 of 7") == "17 of ${p:n}"
    assert hide("the line ends") == "the ${p:f} ends"
    assert hide(repr("line\n")) == "'${p:f}'"
    assert HiddenValues([("${p:none}", ""), ("${p:blank}", " ")]).hide("a b") == "a b"


def test_a_provider_that_fails_is_named_with_path_and_keys() -> None:
    config = {"a": "${p:/x:user}", "b": "${p:/x:password}"}
    with pytest.raises(ConfigProviderError) as failed:
        transform(config, {"p": Raising(ConfigProviderError("it is closed"))})
    said = "config provider p, path '/x', keys 'user', 'password': it is closed"
    assert str(failed.value) == said


def test_of_what_else_a_provider_raises_the_class_alone_is_told() -> None:
    with pytest.raises(ConfigProviderError) as failed:
        transform({"a": "${p:k}"}, {"p": Raising(ValueError("not the value s3cr3t"))})
    assert str(failed.value) == "config provider p, path '', key 'k': Raising raised ValueError"
    assert failed.value.__cause__ is None and failed.value.__suppress_context__
