"""Connectors from files, in each of the forms that Connect takes."""

from pathlib import Path

import pytest

from headgate.herder.messages import CreateConnector
from headgate.ids import TargetState
from headgate_runtime.config.connector_files import ConnectorFileError, read_connector_file

CONFIG = {"name": "c", "connector.class": "FileStreamSource", "tasks.max": "2"}


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("name=c\nconnector.class=FileStreamSource\ntasks.max=2\n", None),
        ('{"name":"c","connector.class":"FileStreamSource","tasks.max":"2"}', None),
        ('{"name":"c","connector.class":"FileStreamSource","tasks.max":2}', None),
        ('{"name":"c","config":{"connector.class":"FileStreamSource","tasks.max":"2"}}', None),
        (
            '{"name":"c","initial_state":"stopped","config":{"name":"c",'
            '"connector.class":"FileStreamSource","tasks.max":"2"}}',
            TargetState.STOPPED,
        ),
    ],
)
def test_forms(tmp_path: Path, text: str, state: TargetState | None) -> None:
    file = tmp_path / "connector"
    file.write_text(text)
    found = read_connector_file(str(file))
    assert found == CreateConnector("c", found.config, state)
    assert dict(found.config) == CONFIG


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("connector.class=x\n", "expected the connector's name under the key name"),
        ('{"config":{"connector.class":"x"}}', "expected the connector's name"),
        ('{"name":"c","config":{"name":"d"}}', r"\(d\) doesn't match connector name in the"),
        ('{"name":"c","config":{},"inital_state":"PAUSED"}', "unknown key 'inital_state'"),
        ('{"name":"c","config":{},"initial_state":"ON"}', "expected one of RUNNING, PAUSED"),
        ('{"name":"c","topics":["a"]}', r'topics: expected a text, found \["a"\]'),
        ('{"name":"c",}', "not JSON"),
        ("[1]", "expected a JSON object, found list"),
        ("name=\\u12", "Invalid"),
        ("name=\\ud800", ":1: half of a surrogate pair"),
        ('{"name":"c","file":"\\ud800"}', "half of a surrogate pair, '.ud800', which no text"),
        ('{"name":"c","file":' + "[" * 9_000 + "]" * 9_000 + "}", "nested too deep"),
    ],
)
def test_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "connector"
    file.write_text(text)
    with pytest.raises(ConnectorFileError, match=said) as caught:
        read_connector_file(str(file))
    assert str(file) in str(caught.value)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('\ufeff{"name":"c","connector.class":"x"}', encoding="utf-8")
    assert read_connector_file(str(file)).name == "c"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConnectorFileError, match="No such file"):
        read_connector_file(str(tmp_path / "none"))


def test_a_pipeline_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('[connectors.c]\n"connector.class" = "FileStreamSource"\n')
    with pytest.raises(
        ConnectorFileError, match=r"found TOML\. .* headgate apply .* --diff"
    ) as caught:
        read_connector_file(str(file))
    assert str(caught.value).startswith(f"{file}: expected JSON or properties")
