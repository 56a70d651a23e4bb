"""Values are hidden by the names of their keys, and in addresses."""

import pytest

from headgate.connector.secret_keys import looks_secret, without_login, without_secrets


@pytest.mark.parametrize(
    "key",
    [
        "fs.secret",
        "fs.key",
        "fs.password",
        "fs.passphrase",
        "fs.token",
        "fs.account_key",
        "fs.sas_token",
        "fs.connection_string",
        "fs.client_kwargs",  # JSON, which may have "aws_secret_access_key"
        "fs.headers",
        "0.fs.key",
        "db.password",
        "catalog.header.Authorization",
        "catalog.s3.secret-access-key",
        "catalog.adls.account-key",
        "catalog.adls.connection-string",
    ],
)
def test_keys_that_are_hidden(key: str) -> None:
    assert looks_secret(key)
    message = without_secrets("refused: hunter2 is no such thing", {key: "hunter2"})
    assert message == "refused: [hidden] is no such thing"


@pytest.mark.parametrize(
    "key", ["fs.endpoint_url", "fs.username", "fs.port", "key.converter", "catalog.uri"]
)
def test_keys_that_are_shown(key: str) -> None:
    assert not looks_secret(key)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sftp://u:p%3A@h:22/in: gone", "sftp://u:[hidden]@h:22/in: gone"),
        ("https://:p@h, ftp://u:a@b@h/", "https://:[hidden]@h, ftp://u:[hidden]@h/"),
        ("sftp://u@h/a:b@c", "sftp://u@h/a:b@c"),
        ("http://h:80/x", "http://h:80/x"),
        ("db://h/d?user=u&password=a%26b&x=1", "db://h/d?user=u&password=[hidden]&x=1"),
        ("https://h/?sslPassword=a, gone", "https://h/?sslPassword=[hidden] gone"),
        ("(db://h/?password=[hidden])", "(db://h/?password=[hidden])"),
    ],
)
def test_addresses_are_shown_without_passwords(text: str, shown: str) -> None:
    assert without_login(text) == shown
