"""Which settings are secrets, by their names and values.

Used by ``streamgroups.connections.parsing``, and by ``streamgroups_kafka.client.jaas`` for its errors. Sources: Kafka's
properties of type PASSWORD (4.1); those that librdkafka marks as sensitive; the options of deltalake's stores; libpq's
parameters; the settings of Confluent's registry client.
"""

from __future__ import annotations

import re

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
    r"pas+w|passphrase|secret|jaas|user\.info|token$|(access|account|sas|api|private|customer|encryption)[._-]?key(?!.*id$)",
    re.IGNORECASE,
)
#: A login in a URL, and a password in a connection string of libpq.
_VALUE = re.compile(r"://[^/\s@]*:[^/\s]*@|\bpassword\s*=", re.IGNORECASE)


def is_secret(name: str, value: str) -> bool:
    """Returns whether a setting is a secret.

    Args:
        name: the name of the setting.
        value: its value.

    >>> is_secret("sasl.password", "x"), is_secret("AWS_ACCESS_KEY_ID", "x"), is_secret("proxy", "http://ann:pw@proxy")
    (True, False, True)
    """
    return name.lower() in KAFKA_SECRETS or bool(_NAME.search(name) or _VALUE.search(value))
