"""Addresses of brokers, as `bootstrap.servers` lists them."""

BROKER_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def brokers(value: str) -> tuple[str, ...]:
    """Refused as by Java's clients; librdkafka would take a missing port for 9092. Differs: Java
    passes over whatever stands before ``://``, and would speak Kafka's protocol to a web server.

    Raises:
        ValueError: says what is wrong with which address.
    """
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    if not found:
        raise ValueError("must not be empty")
    for address in found:
        protocol, separator, rest = address.rpartition("://")
        if separator and protocol.upper() not in BROKER_PROTOCOLS:
            raise ValueError(
                f"{address!r} begins with none of Kafka's protocols, {', '.join(BROKER_PROTOCOLS)};"
                " host:port will do, such as localhost:9092"
            )
        host, _, port = rest.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"{address!r} is no host:port, such as localhost:9092")
    return found
