"""Connect's keys for its REST server."""

import pytest

from headgate_rest.settings import HeaderRule, Listener, RestSettings, advertised_url, header_rules


def url(ports: dict[str, int] | None = None, **texts: str) -> str:
    tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "k.pem"}
    named = {name.replace("_", "."): text for name, text in texts.items()}
    settings = RestSettings.of({**tls, **named})
    bound = {each: (ports or {}).get(each.scheme, each.port) for each in settings.listeners}
    return advertised_url(settings, bound, "10.0.0.7")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({}, "http://10.0.0.7:8083/"),
        ({"listeners": "http://h:99"}, "http://h:99/"),
        ({"listeners": "HTTP://0.0.0.0:99"}, "http://10.0.0.7:99/"),
        ({"listeners": "http://[::1]:99"}, "http://[::1]:99/"),
        ({"listeners": "https://a:1, http://b:2"}, "http://b:2/"),
        ({"listeners": "https://a:1"}, "https://a:1/"),
        (
            {"listeners": "https://a:1,http://b:2", "rest_advertised_listener": "HTTPS"},
            "https://a:1/",
        ),
        (
            {
                "listeners": "http://b:2",
                "rest_advertised_host_name": "w1.example.org",
                "rest_advertised_port": "80",
            },
            "http://w1.example.org:80/",
        ),
    ],
)
def test_the_advertised_url(texts: dict[str, str], expected: str) -> None:
    assert url(**texts) == expected


def test_a_free_port_is_advertised_as_it_was_bound() -> None:
    assert url({"http": 40001}, listeners="http://127.0.0.1:0") == "http://127.0.0.1:40001/"


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ({"listeners": "h:99"}, r"h:99 for configuration listeners: .*protocol://hostname:port"),
        ({"listeners": "ftp://h:99"}, 'must be either "http" or "https"'),
        ({"listeners": "http://h:70000"}, "expected a port"),
        ({"listeners": ""}, "expected at least one"),
        ({"rest.advertised.port": "x"}, "expected a port"),
        ({"rest.advertised.listener": "ftp"}, "expected http or https"),
        ({"inter.worker.signature.algorithm": "Hmac"}, "expected one of HmacMD5"),
        ({"inter.worker.verification.algorithms": "HmacSHA1"}, "must be one of"),
        ({"response.http.headers.config": "put X: y"}, r"\[action\] \[header name\]"),
        ({"response.http.headers.config": "setDate X: y"}, "takes milliseconds from now"),
        (
            {"listeners": "https://h:1", "ssl.keystore.location": "k.jks"},
            "ssl.keystore.type: the REST server reads PEM files",
        ),
        (
            {
                "listeners": "https://h:1",
                "ssl.keystore.location": "k.pem",
                "ssl.keystore.type": "PEM",
                "ssl.client.auth": "maybe",
            },
            "none, requested or required",
        ),
        ({"listeners": "https://h:1"}, "ssl.keystore.location is not set"),
    ],
)
def test_what_is_wrong_is_told(texts: dict[str, str], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        RestSettings.of(texts)


def test_a_broker_store_of_java_is_nothing_to_a_listener_without_tls() -> None:
    RestSettings.of({"ssl.truststore.location": "t.jks", "listeners": "http://h:1"})


def test_admin_listeners() -> None:
    assert RestSettings.of({}).admin_listeners is None
    assert RestSettings.of({"admin.listeners": ""}).admin_listeners == ()
    found = RestSettings.of({"admin.listeners": "http://h:1"}).admin_listeners
    assert found == (Listener("http", "h", 1),)


def test_each_kind_of_listener_has_its_own_certificate() -> None:
    texts = {
        "listeners": "https://h:1",
        "admin.listeners": "https://h:2",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "clients.pem",
        "ssl.truststore.type": "JKS",
        "listeners.https.ssl.keystore.location": "users.pem",
        "admin.listeners.https.ssl.keystore.location": "admins.pem",
        "admin.listeners.https.ssl.client.auth": "required",
    }
    settings = RestSettings.of(texts)
    assert (settings.tls.certificate, settings.tls.client_auth) == ("users.pem", "none")
    assert (settings.admin_tls.certificate, settings.admin_tls.client_auth) == (
        "admins.pem",
        "required",
    )


def test_header_rules() -> None:
    text = 'add Cache-Control: no-store, "set X-A: 1, 2",addDate Expires: 60000'
    assert header_rules(text) == (
        HeaderRule("add", "Cache-Control", "no-store"),
        HeaderRule("set", "X-A", "1, 2"),
        HeaderRule("addDate", "Expires", "60000"),
    )
    assert header_rules("") == ()
