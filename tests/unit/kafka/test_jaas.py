"""The texts that ``sasl.jaas.config`` may have."""

import pytest

from headgate_kafka.login.jaas import JaasError, parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('a.B required username="u" password="p w";', {"username": "u", "password": "p w"}),
        ("a.B required  username = u\n password='it\\'s' ;", {"username": "u", "password": "it's"}),
        ('a.B REQUIRED k="a\\"b;=c\\\\";', {"k": 'a"b;=c\\'}),
        (
            'a.B required useKeyTab=true keyTab="/etc/x.keytab";',
            {"useKeyTab": "true", "keyTab": "/etc/x.keytab"},
        ),
        ("a.B required; // no options", {}),
        ("/* who */ a.B required x=1; ", {"x": "1"}),
    ],
)
def test_options(text: str, options: dict[str, str]) -> None:
    entry = parse_jaas(text)
    assert entry.module == "a.B"
    assert entry.options == options
    assert "p w" not in repr(entry)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a.B", "a.B required", "a.B password=secret;", 'a.B required password="secret;'),
        *("a.B required secret;", "a.B required secret=;", "a.B required x=1; a.C required;"),
        *(
            "a.B required = secret x;",
            "a.B required url=https://secret;",
            "; required x = secret ;",
        ),
    ],
)
def test_refused_without_showing_it(text: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_jaas(text)
    assert "secret" not in str(caught.value)
