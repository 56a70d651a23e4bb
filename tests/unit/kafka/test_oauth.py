"""Tokens for logins by OAUTHBEARER: from a real endpoint, renewed before their life ends."""

import dataclasses
import gc
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from support.kafka.token_endpoint import TokenEndpoint, token_endpoint
from support.rest.world import wait_until

from headgate.ports import RefusedError, TransportError
from headgate_kafka.clients.roles import connection
from headgate_kafka.clients.settings import ClientSettingsError, librdkafka, worker_kafka_python
from headgate_kafka.login.oauth import Token, Tokens, ask
from headgate_kafka.login.oauth_login import OAuthLogin, of_librdkafka
from local_kafka.certificates import Authority
from local_kafka.jvm import free_ports

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "a secret of connect"


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint({"connect": SECRET}) as made:
        yield made


def login(endpoint: TokenEndpoint, secret: str = SECRET) -> OAuthLogin:
    return OAuthLogin(endpoint.url, "connect", secret, "a b")


def given(jaas: str = "", **more: str) -> dict[str, str]:
    url = {"sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE} required {jaas};",
        **url,
        **more,
    }


def test_a_token_is_given_for_credentials(endpoint: TokenEndpoint) -> None:
    found = ask(login(endpoint))
    assert found.text.count(".") == 2
    assert found.life_s == 3_600
    assert endpoint.asked == [{"grant_type": ["client_credentials"], "scope": ["a b"]}]


def test_how_long_it_lives_may_be_said_by_the_token_alone(endpoint: TokenEndpoint) -> None:
    endpoint.says_life = False
    assert 3_590 < ask(login(endpoint)).life_s <= 3_600


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RefusedError),
        (403, RefusedError),
        (404, RefusedError),
        (429, TransportError),
        (500, TransportError),
        (503, TransportError),
    ],
)
def test_who_refuses_is_told_apart_from_who_cannot_now(
    endpoint: TokenEndpoint, status: int, kind: type[Exception]
) -> None:
    endpoint.status = status
    with pytest.raises(
        kind, match=rf"client connect: the endpoint {endpoint.url} answers {status}"
    ) as caught:
        ask(login(endpoint))
    assert caught.type is kind


def test_a_wrong_secret_is_not_shown(endpoint: TokenEndpoint) -> None:
    with pytest.raises(
        RefusedError, match=r"answers 401 \(invalid_client, who is that\?\)"
    ) as caught:
        ask(login(endpoint, "another secret"))
    assert "another secret" not in str(caught.value)
    assert "another secret" not in repr(login(endpoint, "another secret"))


@pytest.mark.parametrize("answer", [{}, {"access_token": ""}, {"access_token": 5}, [], None])
def test_an_answer_without_a_token_is_a_refusal(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(endpoint, "answer", lambda *_: (200, answer))
    with pytest.raises(RefusedError, match="no JSON with an access_token"):
        ask(login(endpoint))


@pytest.mark.parametrize("life", [{}, {"expires_in": "soon"}, {"expires_in": [3]}])
def test_a_token_of_unknown_life_is_a_refusal(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, life: dict[str, object]
) -> None:
    monkeypatch.setattr(endpoint, "answer", lambda *_: (200, {"access_token": "a.b.c", **life}))
    with pytest.raises(RefusedError, match="how long its token lives"):
        ask(login(endpoint))


@pytest.mark.parametrize(
    ("said", "life_s"),
    [(30, 30), ("30", 30), (-5, 1), (float("nan"), 1), (float("inf"), 86_400), (10**400, None)],
)
def test_odd_lives_are_lives_that_a_thread_can_wait_for(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, said: object, life_s: float | None
) -> None:
    answer = {"access_token": "a.b.c", "expires_in": said}
    monkeypatch.setattr(endpoint, "answer", lambda *_: (200, answer))
    if life_s is None:
        with pytest.raises(RefusedError, match="how long its token lives"):
            ask(login(endpoint))
    else:
        assert ask(login(endpoint)).life_s == life_s


def test_an_answer_that_breaks_off_is_a_matter_of_time(endpoint: TokenEndpoint) -> None:
    endpoint.breaks_off = True
    with pytest.raises(TransportError, match="does not answer: IncompleteRead") as caught:
        ask(login(endpoint))
    assert caught.type is TransportError
    with pytest.raises(RefusedError, match=r"answers 401; check clientId"):
        ask(login(endpoint, "another secret"))


def test_nobody_there_is_a_matter_of_time() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}/token"
    with pytest.raises(TransportError, match=r"does not answer: .*refused") as caught:
        ask(OAuthLogin(url, "connect", SECRET))
    assert caught.type is TransportError


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_the_certificate_of_the_endpoint_is_checked(authority: Authority) -> None:
    with token_endpoint({"connect": SECRET}, authority=authority) as endpoint:
        trusting = dataclasses.replace(login(endpoint), trusted=authority.ca_file.read_text())
        assert ask(trusting).life_s == 3_600
        with pytest.raises(RefusedError, match=r"certificate verify failed.*ssl\.truststore"):
            ask(login(endpoint))
        elsewhere = endpoint.url.replace("127.0.0.1", "localhost")
        with pytest.raises(RefusedError, match=r"not valid for 'localhost'.*or the name in"):
            ask(dataclasses.replace(trusting, endpoint=elsewhere))
        broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        with pytest.raises(RefusedError, match=r"trusted cannot be read.*ssl\.truststore"):
            ask(dataclasses.replace(trusting, trusted=broken))


# -- renewal --


class Script:
    """A stand-in for an endpoint, which gives a token or raises `failure`. `asked` has the names of
    the threads that asked."""

    def __init__(self, life_s: float) -> None:
        self.life_s = life_s
        self.failure: Exception | None = None
        self.asked: list[str] = []

    def __call__(self, login: OAuthLogin) -> Token:
        self.asked.append(threading.current_thread().name)
        if self.failure is not None:
            raise self.failure
        return Token(f"t{len(self.asked)}", self.life_s)


LOGIN = OAuthLogin("https://login.example/token", "connect", SECRET)


def test_one_token_serves_until_it_is_renewed_by_another_thread() -> None:
    script = Script(life_s=0.5)
    tokens = Tokens(LOGIN, script)
    assert {tokens.token() for _ in range(5)} == {"t1"}
    asked_at = time.monotonic()
    wait_until(lambda: tokens.token() != "t1")
    assert time.monotonic() - asked_at > 0.2
    first, *others = script.asked
    assert first == threading.current_thread().name
    assert set(others) == {"headgate-oauth"}


def test_a_first_token_that_is_refused_is_asked_for_again_by_the_next_connection() -> None:
    script = Script(life_s=100)
    script.failure = RefusedError("no")
    tokens = Tokens(LOGIN, script)
    for _ in range(2):
        with pytest.raises(SaslAuthenticationFailedError, match="no"):
            tokens.token()
    script.failure = None
    assert tokens.token() == "t3"


def test_while_the_endpoint_is_away_the_token_serves_to_its_end_and_nobody_waits() -> None:
    script = Script(life_s=1.0)
    tokens = Tokens(LOGIN, script, again_s=0.05)
    assert tokens.token() == "t1"
    script.failure = TransportError("away")
    wait_until(lambda: len(script.asked) > 2)
    assert tokens.token() == "t1"
    time.sleep(0.5)
    own = threading.current_thread().name
    before = script.asked.count(own)
    with pytest.raises(KafkaConnectionError, match="away"):
        tokens.token()
    assert script.asked.count(own) == before
    script.failure = None

    def renewed() -> bool:
        try:
            return tokens.token() != "t1"
        except KafkaConnectionError:
            return False

    wait_until(renewed)


def test_its_thread_ends_with_it() -> None:
    before = threading.enumerate()
    tokens = Tokens(LOGIN, Script(life_s=3_600))
    tokens.token()
    (own,) = [each for each in threading.enumerate() if each not in before]
    assert own.name == "headgate-oauth"
    gone = weakref.ref(tokens)
    del tokens
    gc.collect()
    assert gone() is None
    own.join(10)
    assert not own.is_alive()


# -- settings --


def test_both_libraries_are_given_the_same() -> None:
    jaas = 'clientId="i" clientSecret="s" scope="a b" extension_pool="p" extension_cluster="c"'
    made = librdkafka(given(jaas), "admin")
    assert made["sasl.oauthbearer.token.endpoint.url"] == "https://login.example/token"
    assert made["sasl.oauthbearer.extensions"] == "cluster=c,pool=p"
    assert made["sasl.oauthbearer.scope"] == "a b"
    provider = worker_kafka_python(given(jaas), client_id="w")["sasl_oauth_token_provider"]
    assert provider.extensions() == {"cluster": "c", "pool": "p"}


def test_properties_come_before_the_login_modules_options() -> None:
    prefix = "sasl.oauthbearer.client.credentials.client"
    more = {f"{prefix}.id": "j", f"{prefix}.secret": "t", "sasl.oauthbearer.scope": "x"}
    made = librdkafka(given('clientId="i" clientSecret="s" scope="a b"', **more), "producer")
    found = {made[f"sasl.oauthbearer.{key}"] for key in ("client.id", "client.secret", "scope")}
    assert found == {"j", "t", "x"}


def test_what_checks_the_endpoint_is_said_by_the_login_module(authority: Authority) -> None:
    """As in Java, the other properties are about brokers."""
    authority.make()
    trusted = f'ssl.truststore.location="{authority.ca_file}" ssl.truststore.type="PEM"'
    jaas = 'clientId="i" clientSecret="s"'
    made = librdkafka(given(f"{jaas} {trusted}"), "admin")
    assert made["https.ca.pem"].strip() == authority.ca_file.read_text().strip()
    assert "ssl.ca.pem" not in made
    assert connection(made)["https.ca.pem"] == made["https.ca.pem"]
    of_brokers = {"ssl.truststore.location": str(authority.ca_file), "ssl.truststore.type": "PEM"}
    assert "https.ca.pem" not in librdkafka(given(jaas, **of_brokers), "admin")


def test_a_login_is_found_again_in_the_settings_of_librdkafka() -> None:
    found = OAuthLogin("https://a/t", "i", "s", "x y", (("a", "b=c"), ("d", "e")), "PEM")
    assert of_librdkafka(found.librdkafka()) == found
    least = OAuthLogin("https://a/t", "i", "s")
    assert of_librdkafka({k: v for k, v in least.librdkafka().items() if v}) == least
    assert of_librdkafka({"sasl.mechanism": "PLAIN"}) is None


@pytest.mark.parametrize(
    ("jaas", "more", "key", "text"),
    [
        ('clientSecret="s"', {}, "client.id", "has no option clientId"),
        ('clientId="i"', {}, "client.secret", "has no option clientSecret"),
        (
            'unsecuredLoginStringClaim_sub="i"',
            {"sasl.oauthbearer.token.endpoint.url": " "},
            "token.endpoint.url",
            "Tokens without a signature",
        ),
        (
            'clientId="i" clientSecret="s"',
            {"sasl.oauthbearer.token.endpoint.url": "file:///run/token"},
            "token.endpoint.url",
            "'file:///run/token' is no http or https URL",
        ),
        (
            'clientId="i" clientSecret="s" ssl.truststore.location="/no/store"',
            {},
            "sasl.jaas.config",
            "option ssl.truststore.location: /no/store cannot be read: No such file",
        ),
        (
            'clientId="i" clientSecret="s" ssl.keystore.location="/no/store"',
            {},
            "sasl.jaas.config",
            "option ssl.keystore.location: to show the token endpoint a certificate",
        ),
    ],
)
def test_what_is_missing_or_not_supported_is_said(
    jaas: str, more: dict[str, str], key: str, text: str
) -> None:
    with pytest.raises(ClientSettingsError, match=text) as caught:
        librdkafka(given(jaas, **more), "consumer")
    assert caught.value.key.endswith(key)
