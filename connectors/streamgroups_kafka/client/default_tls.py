"""The checks of a server's certificate that all clients have in common.

Used by :mod:`streamgroups_kafka.client.tls` and :mod:`streamgroups_kafka.client.client_credentials`. Python 3.13 rejects
certificates that break a rule of RFC 5280, such as those of a CA without the extension Authority Key Identifier. librdkafka and
the Java client accept them. Without this module the source would connect, and commands and transactions would not.
"""

from __future__ import annotations

import ssl


def default_context(
    *, cafile: str | None = None, capath: str | None = None, cadata: str | None = None
) -> ssl.SSLContext:
    """Returns a TLS context that checks the certificate and the host name of a server, as librdkafka does.

    Args:
        cafile, capath, cadata: the trusted certificates, as those of ``ssl.create_default_context``.

    Raises:
        OSError: if a file cannot be read or has the wrong content (``ssl.SSLError``).

    >>> default_context().verify_mode
    <VerifyMode.CERT_REQUIRED: 2>
    """
    if cadata is not None:
        # Python rejects other characters, also in the comments between certificates.
        cadata = cadata.encode("ascii", "replace").decode("ascii")
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
