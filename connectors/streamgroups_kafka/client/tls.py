"""Python's TLS settings from librdkafka's settings, for the few connections that librdkafka does not make.

Used by :mod:`streamgroups_kafka.admin.connection_settings` and :mod:`streamgroups_kafka.probes.cluster_probe`. Source:
librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.default_tls import default_context


def uses_tls(config: ClientConfig) -> bool:
    """Whether connections are encrypted."""
    return (config.get("security.protocol") or "plaintext").lower().endswith("ssl")


def tls_context(config: ClientConfig) -> ssl.SSLContext | None:
    """Returns the TLS context for connections to the brokers; ``None`` for plaintext.

    Args:
        config: the configuration of the client.

    Raises:
        InvalidOption: if a PKCS12 or JKS store cannot be read.
        OSError: if a file cannot be read or has the wrong content (``ssl.SSLError``).

    >>> tls_context(ClientConfig((("security.protocol", "sasl_plaintext"),))) is None
    True
    """
    if not uses_tls(config):
        return None
    config = ClientConfig(config.with_pem)
    trusted, trusted_pem = config.get("ssl.ca.location"), config.get("ssl.ca.pem")
    if trusted_pem:
        context = default_context(cadata=trusted_pem)
    elif trusted and trusted != "probe":
        directory = os.path.isdir(trusted)
        context = default_context(capath=trusted if directory else None, cafile=None if directory else trusted)
    else:
        context = default_context()
    if ciphers := config.get("ssl.cipher.suites"):
        context.set_ciphers(ciphers)
    if revoked := config.get("ssl.crl.location"):
        context.load_verify_locations(revoked)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if (config.get("ssl.endpoint.identification.algorithm") or "https").lower() == "none":
        context.check_hostname = False
    if (config.get("enable.ssl.certificate.verification") or "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_own_certificate(context, config)
    return context


def _load_own_certificate(context: ssl.SSLContext, config: ClientConfig) -> None:
    # With an empty password, OpenSSL does not prompt for one on the terminal.
    password = config.get("ssl.key.password") or ""
    certificate, key = config.get("ssl.certificate.location"), config.get("ssl.key.location")
    if certificate and key:
        context.load_cert_chain(certificate, key, password)
    elif certificate_pem := config.get("ssl.certificate.pem"):
        # Python loads client certificates from files only.
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "client.pem")
            file.touch(mode=0o600)
            file.write_text((config.get("ssl.key.pem") or "") + certificate_pem, encoding="utf-8")
            context.load_cert_chain(file, password=password)
