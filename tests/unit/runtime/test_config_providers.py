"""Config providers by name, their settings in a worker's file, and what validations show."""

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from headgate.connector.config_providers import ConfigProvider, ConfigProviderError
from headgate_runtime.config.properties import parse_properties
from headgate_runtime.config.providers import (
    CLASSES,
    DirectoryConfigProvider,
    FileConfigProvider,
    find_provider,
)
from headgate_runtime.config.settings import DISTRIBUTED, WorkerSettings
from headgate_runtime.config.transformer import WorkerConfigTransformer
from headgate_runtime.config.worker_file import WorkerFile, WorkerFileError, check_worker_file
from headgate_runtime.plugins.rest import RestPlugins
from headgate_runtime.plugins.validation import config_error

FILE = """\
bootstrap.servers=localhost:9092
group.id=connect-cluster
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.topic=o
config.storage.topic=c
status.storage.topic=s
"""
CLASS = "org.apache.kafka.common.config.provider.FileConfigProvider"
PROVIDER = f"config.providers=file\nconfig.providers.file.class={CLASS}\n"


class Own(ConfigProvider):
    """A provider by a user, which notes what it was given."""

    def __init__(self) -> None:
        self.params: Mapping[str, str] = {}
        self.closed = 0

    def configure(self, params: Mapping[str, str]) -> None:
        if "refuse" in params:
            raise ValueError(f"no good: {params['refuse']}")
        self.params = params

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        return {key: self.params[key] for key in keys if key in self.params}


def check(more: str) -> WorkerFile:
    return check_worker_file(parse_properties(FILE + more, "w.properties"), DISTRIBUTED)


def problem(more: str) -> str:
    with pytest.raises(WorkerFileError) as refused:
        check(more)
    (found,) = refused.value.problems
    return found


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.properties"
    path.write_text("password=s3cr3t-word\nsoon=later-on\n")
    return path


# -- names --


@pytest.mark.parametrize("name", [*CLASSES, *(kind.__name__ for kind in CLASSES.values())])
def test_apaches_are_known_by_both_names(name: str) -> None:
    assert find_provider(f" {name} ").__name__ == name.rpartition(".")[2]


def test_an_own_one_is_named_by_its_module() -> None:
    assert find_provider(f"{__name__}:Own") is not None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("com.example.Vault", f"there is no config provider com.example.Vault; there are {CLASS}"),
        ("", "the provider's class is missing; there are"),
        ("no.such.module:Vault", "no.such.module:Vault cannot be imported: No module named"),
        (f"{__name__}:FILE", "is no subclass of headgate's ConfigProvider"),
    ],
)
def test_what_there_is_not(name: str, said: str) -> None:
    with pytest.raises(ConfigProviderError) as refused:
        find_provider(name)
    assert said in str(refused.value)


def test_what_its_module_raises_is_told_without_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_vault.py").write_text("raise ValueError('hunter2')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigProviderError) as refused:
        find_provider("broken_vault:Vault")
    said = "broken_vault:Vault cannot be imported: ValueError (broken_vault.py, line 1)"
    assert str(refused.value) == said


# -- what failures say --


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"password=caf\xe9\n", "is not in UTF-8"), (b"password=\\u00g1", "malformed \\uxxxx escape")],
)
def test_a_file_that_is_no_properties_file_is_not_quoted(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "bad.properties"
    path.write_bytes(content)
    with pytest.raises(ConfigProviderError) as failed:
        FileConfigProvider().get(str(path), ["password"])
    assert said in str(failed.value)
    assert "00g1" not in str(failed.value) and "caf" not in str(failed.value)


def test_why_a_file_cannot_be_read_is_said(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file")):
        with pytest.raises(ConfigProviderError, match=f"{path} cannot be read: {reason}"):
            FileConfigProvider().get(str(path), ["password"])


def test_links_inside_allowed_paths_may_lead_elsewhere(tmp_path: Path) -> None:
    """Mounted secrets have such links. Java follows them, too."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "password").write_text("s3cr3t")
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "password").symlink_to(tmp_path / "data" / "password")
    provider = DirectoryConfigProvider()
    provider.configure({"allowed.paths": str(tmp_path / "mounted")})
    assert provider.get(str(tmp_path / "mounted"), ["password"]) == {"password": "s3cr3t"}


# -- the worker's file --


def test_the_files_own_values_are_resolved(secrets: Path) -> None:
    jaas = f'producer.sasl.jaas.config=x password="${{file:{secrets}:password}}";\n'
    found = check(PROVIDER + jaas + f"group.id=${{file:{secrets}:soon}}\n")
    assert found.properties["producer.sasl.jaas.config"] == 'x password="s3cr3t-word";'
    assert found.settings["group.id"] == "later-on"


def test_what_providers_are_told_goes_no_further() -> None:
    """Tasks are given the worker's properties."""
    told = PROVIDER + "config.providers.file.param.token=t0ken\n"
    found = check(told)
    assert found.warnings == ()
    assert not any(key.startswith("config.providers.") for key in found.properties)
    assert "t0ken" not in repr((found.properties, found.settings))


def test_providers_of_connectors_are_told_what_the_files_words_stand_for(secrets: Path) -> None:
    more = f"config.providers=file,own\nconfig.providers.own.class={__name__}:Own\n"
    more += f"config.providers.own.param.key=${{file:{secrets}:password}}\n"
    found = check(PROVIDER + more)
    resolved = found.transformer.resolve({"a": "${own:key}"}, "c")
    assert resolved.config == {"a": "s3cr3t-word"}


def test_values_do_not_show_in_what_is_wrong_with_the_file(secrets: Path) -> None:
    said = problem(PROVIDER + f"session.timeout.ms=${{file:{secrets}:password}}\n")
    assert said == (
        f"w.properties:10: session.timeout.ms: '${{file:{secrets}:password}}' is not a whole number"
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            PROVIDER + "sasl.jaas.config=${file:/nowhere/x.properties:password}\n",
            "w.properties:10: sasl.jaas.config: config provider file, path "
            "'/nowhere/x.properties', key 'password': /nowhere/x.properties cannot be read: "
            "No such file or directory",
        ),
        (
            "config.providers=vault\nconfig.providers.vault.class=com.example.Vault\n",
            "w.properties:9: config.providers.vault.class: there is no config provider "
            f"com.example.Vault; there are {', '.join(CLASSES)}",
        ),
        (
            "config.providers=vault\n",
            "w.properties: config.providers.vault.class: the provider's class is missing; "
            f"there are {', '.join(CLASSES)}",
        ),
        (
            PROVIDER + "config.providers.file.param.allowed.paths=relative\n",
            "w.properties:9: config.providers.file.class: config provider file: allowed.paths: "
            "relative is not absolute",
        ),
        (
            f"config.providers=o\nconfig.providers.o.class={__name__}:Own\n"
            "config.providers.o.param.refuse=s3cr3t\n",
            "w.properties:9: config.providers.o.class: config provider o: configure raised "
            "ValueError",
        ),
    ],
)
def test_what_is_wrong_with_a_provider(more: str, said: str) -> None:
    assert problem(more) == said


def test_keys_of_providers_that_nothing_reads_are_named() -> None:
    more = f"config.providers.vault.class={CLASS}\nconfig.providers.file.parm.x=1\n"
    (warning,) = check(PROVIDER + more).warnings
    assert warning.endswith("config.providers.file.parm.x, config.providers.vault.class")


# -- validation --


SETTINGS = WorkerSettings.parse({"headgate.task.runner": "process"})


def transformer(secrets: Path) -> WorkerConfigTransformer:
    return check(PROVIDER + f"config.providers.file.param.allowed.paths={secrets}\n").transformer


def config(secrets: Path, **more: str) -> dict[str, str]:
    return {
        "connector.class": "FileStreamSource",
        "topic": f"${{file:{secrets}:password}}",
        "file": "f",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def test_a_config_is_valid_by_what_it_refers_to(secrets: Path) -> None:
    given = config(secrets, tasks_max=f"${{file:{secrets}:soon}}")
    said = config_error("c", given, SETTINGS, transformer(secrets))
    assert said is not None and "later-on" not in said
    assert f"Invalid value ${{file:{secrets}:soon}} for configuration tasks.max" in said
    secrets.write_text("password=t\nsoon=3\n")
    assert config_error("c", given, SETTINGS, transformer(secrets)) is None


def test_the_answer_has_references(secrets: Path) -> None:
    plugins = RestPlugins(SETTINGS, transformer(secrets))
    given = config(secrets, errors_tolerance=f"${{file:{secrets}:password}}")
    answer = plugins.validate("FileStreamSource", {**given, "name": "c"})
    assert "s3cr3t-word" not in repr(answer)
    values = {each["value"]["name"]: each["value"] for each in answer["configs"]}
    assert values["topic"]["value"] == given["topic"] and not values["topic"]["errors"]
    assert len(values["errors.tolerance"]["errors"]) == 1


def test_a_providers_failure_is_an_error_of_the_key(secrets: Path) -> None:
    given = config(secrets, file="${file:/nowhere:password}")
    said = config_error("c", given, SETTINGS, transformer(secrets))
    assert said is not None
    assert "contains the following 1 error(s):\nconfig provider file, path '/nowhere', " in said
    assert "'password': the path is outside of allowed.paths" in said
