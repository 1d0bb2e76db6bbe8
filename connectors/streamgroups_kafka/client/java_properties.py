"""Java properties files, as Kafka's tools read them.

Called by ``properties_file`` and ``connected``. The file is that of ``kafka-consumer-groups.sh --command-config``, with Java's
names and the escapes of ``java.util.Properties``. Those tools accept a file of a consumer or producer, and ignore properties
that do not affect connections. So does this module. Source: Kafka's command line tools; ``java.util.Properties``.
"""

from __future__ import annotations

from pathlib import Path

from streamgroups.errors import InvalidOption
from streamgroups_kafka.client.jaas import words

#: Properties of consumers and producers that do not affect the connection. No command reads or writes records.
_NOT_ABOUT_CONNECTING = words(
    """
    group.id auto.offset.reset enable.auto.commit auto.commit.interval.ms key.deserializer value.deserializer
    partition.assignment.strategy interceptor.classes allow.auto.create.topics session.timeout.ms heartbeat.interval.ms
    group.protocol group.remote.assignor key.serializer value.serializer acks batch.size buffer.memory compression.type
    delivery.timeout.ms enable.idempotence linger.ms max.block.ms max.request.size partitioner.class retries
    transactional.id transaction.timeout.ms
    """
)


def connecting_properties(file: Path) -> dict[str, str]:
    """Returns the properties of a file that affect connections.

    Args:
        file: see :func:`read_properties`.

    Raises:
        InvalidOption: if the file cannot be read, or contains an invalid escape.
    """
    return {name: value for name, value in read_properties(file).items() if affects_connections(name)}


def affects_connections(name: str) -> bool:
    """Returns whether a property affects connections.

    >>> affects_connections("sasl.mechanism"), affects_connections("Session.Timeout.Ms")
    (True, False)
    """
    return name.strip().lower() not in _NOT_ABOUT_CONNECTING


def read_properties(file: Path) -> dict[str, str]:
    r"""Reads a Java properties file: comments, continued lines and escapes as in Java.

    Args:
        file: the path. Java reads Latin-1, and some tools UTF-8. This function reads UTF-8, which includes ASCII.

    Raises:
        InvalidOption: if the file cannot be read, or contains an invalid escape.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".properties") as written:
    ...     _ = written.write("# TLS\nsecurity.protocol = SSL\nssl.key.password:a\\\n   b")
    ...     written.flush()
    ...     read_properties(Path(written.name))
    {'security.protocol': 'SSL', 'ssl.key.password': 'ab'}
    """
    # Imported late: most commands have no file.
    import javaproperties

    try:
        return javaproperties.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as e:
        raise InvalidOption(
            f"{file} cannot be read: {e.strerror}.", remedy="Pass the path of a Java properties file."
        ) from e
    except UnicodeDecodeError:
        what = f"{file} is not UTF-8 text."
    except javaproperties.InvalidUEscapeError:
        what = f"{file} contains an invalid \\u escape."
    # The invalid line may contain a password. So the error contains neither the line nor the original error.
    raise InvalidOption(what, remedy="Pass the path of a Java properties file; double each backslash in a value.")
