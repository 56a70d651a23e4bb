"""What Python's TLS checks a server by, alike for brokers and for token endpoints."""

import ssl


def client_context(trusted: str | None) -> ssl.SSLContext:
    """As librdkafka's, not `ssl.create_default_context`: later versions of Python refuse there what
    authorities made by Java's keytool sign.

    Args:
        trusted: certificates in PEM; None: those that the system trusts.

    Raises:
        ssl.SSLError: one of them cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trusted is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=trusted)
    return context
