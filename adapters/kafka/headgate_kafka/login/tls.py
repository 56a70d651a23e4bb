"""The TLS context of Python's clients, the same for brokers and token endpoints."""

import ssl


def client_context(trusted: str | None) -> ssl.SSLContext:
    """Return a TLS context that checks servers as librdkafka does.

    It is not `ssl.create_default_context`, which in later versions of Python refuses certificates
    signed by authorities that were made with Java's keytool.

    Args:
        trusted: certificates in PEM. None: those that the system trusts.

    Raises:
        ssl.SSLError: one of the certificates cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trusted is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=trusted)
    return context
