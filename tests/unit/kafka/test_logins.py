"""The login of each client of a connector, and which of the clients have the same one."""

from collections.abc import Mapping

from headgate_kafka.login.logins import Kind, Login, connector_logins

HERE = {"bootstrap.servers": "a:1,b:1"}
SECURITY = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


def login(user: str, prefix: str = "") -> dict[str, str]:
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{user}" password="{user}-secret";'
    )
    return {f"{prefix}{key}": text for key, text in {**SECURITY, "sasl.jaas.config": jaas}.items()}


def logins(
    worker: Mapping[str, str], config: Mapping[str, str], kind: Kind = "source"
) -> list[Login]:
    return connector_logins(
        {**HERE, **worker}, config, "c", kind, reads_own_offsets=kind == "source", client_id="d"
    )


def seen(found: list[Login]) -> list[tuple[str, object]]:
    return [("+".join(each.roles), each.settings.get("sasl.username")) for each in found]


def test_who_logs_in_alike_is_one() -> None:
    assert seen(logins({}, {})) == [("producer+admin client+offsets reader", None)]
    # The same servers, and what does not count without TLS.
    other = {"producer.bootstrap.servers": "b:1, a:1", "ssl.keystore.location": "none"}
    assert len(logins(other, {})) == 1
    worker = {**login("w"), **login("w", "producer."), **login("w", "consumer.")}
    assert seen(logins(worker, {})) == [("producer+admin client+offsets reader", "w")]
    assert seen(logins(worker, {}, "sink")) == [("consumer+admin client", "w")]


def test_each_by_what_is_said_of_it() -> None:
    worker = {**login("w"), **login("p", "producer."), **login("c", "consumer.")}
    assert seen(logins(worker, {})) == [
        ("producer", "p"),
        ("admin client", "w"),
        ("offsets reader", "c"),
    ]
    assert seen(logins(worker, login("o", "producer.override.")))[0] == ("producer", "o")
    assert seen(logins(worker, {}, "sink")) == [("consumer", "c"), ("admin client", "w")]
    elsewhere = logins({}, {"producer.override.bootstrap.servers": "x:1"})
    assert [each.settings["bootstrap.servers"] for each in elsewhere] == ["x:1"]


def test_whose_arguments_those_of_one_login_are() -> None:
    """The offsets reader has none of kafka-python's."""
    worker = {**login("w"), **login("p", "producer."), **login("w", "consumer.")}
    found = logins(worker, {})
    assert seen(found) == [("producer", "p"), ("admin client+offsets reader", "w")]
    assert found[1].kafka_python()["sasl_plain_username"] == "w"


def test_a_login_that_was_left_out_is_said_to_be() -> None:
    producer, admin = logins(login("w"), {})
    assert producer.roles == ("producer", "offsets reader")
    assert "give the worker producer.sasl.*" in producer.hint
    assert not admin.hint


def test_settings_that_make_no_client_are_told_and_hide_no_other() -> None:
    found = logins({}, {"producer.override.security.protocol": "SASL_SSL"})
    assert [each.roles for each in found][1:] == [("admin client",)]
    assert found[0].refused.startswith("sasl.")
    assert not found[1].refused
