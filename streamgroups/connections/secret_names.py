"""Which settings are secrets, by their names and values.

Used by ``streamgroups.connections``, ``streamgroups.processors``, the clients of Kafka, and the sinks. Sources: Kafka's
properties of type PASSWORD (4.1); those that librdkafka marks as sensitive; the options of deltalake's stores (1.6);
libpq's parameters (18); the settings of Confluent's registry client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

from streamgroups.url_logins import has_password

#: Kafka's nine properties of type PASSWORD (4.1), and those that librdkafka marks as sensitive. They include
#: certificates, as in Kafka.
KAFKA_SECRETS = frozenset(
    {
        "https.ca.pem",
        "sasl.jaas.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    }
)
#: Parts of other names of secrets, also of misspelt ones.
_NAME = re.compile(
    r"pas+w|passphrase|(?:^|[._-])pwd$|secret|jaas|user\.info|token$|scram_(client|server)_key"
    r"|(access|account|sas|api|private|customer|encryption|master)[._-]?key(?!.*id$)",
    re.IGNORECASE,
)
#: A parameter in a connection string or in the query of a URL. libpq needs no space between a quoted value and the next name.
_PARAMETER = re.compile(r"(?<![\w./-])([\w.-]+)\s*=")


def is_secret(name: str, value: str) -> bool:
    """Returns whether a setting is a secret.

    Args:
        name: the name of the setting.
        value: its value.

    >>> is_secret("sasl.password", "x"), is_secret("AWS_ACCESS_KEY_ID", "x"), is_secret("proxy", "http://ann:pw@proxy")
    (True, False, True)
    """
    return is_secret_name(name) or secret_parameter(value) is not None


def is_secret_name(name: str) -> bool:
    """Returns whether each value of a setting with this name is a secret.

    Args:
        name: the name of the setting.

    >>> is_secret_name("fs.s3a.secret.key"), is_secret_name("AccountKey"), is_secret_name("proxy")
    (True, True, False)
    """
    return name.lower() in KAFKA_SECRETS or _NAME.search(name) is not None


def secret_parameter(value: str) -> str | None:
    """Returns the name of the secret in a connection string or a URL; ``None`` if it contains none.

    Args:
        value: the connection string or URL.

    >>> secret_parameter("host=db sslkey=/run/me.key sslpassword=hunter2"), secret_parameter("postgresql://ann:pw@db")
    ('sslpassword', 'password')
    """
    if has_password(value):
        return "password"
    names = _PARAMETER.findall(unquote(value))
    return next((name for name in names if _NAME.search(name)), None)


def secrets_in(options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the values of options that no error may contain.

    >>> secrets_in({"AWS_REGION": "eu-west-1", "AWS_SECRET_ACCESS_KEY": "hunter2"})
    ('hunter2',)
    """
    return tuple(value for name, value in options.items() if is_secret(name, value))
