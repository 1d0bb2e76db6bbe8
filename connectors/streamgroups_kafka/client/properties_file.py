"""The options ``--bootstrap-server``, ``--command-config`` and ``--kafka``; the first two are those of Kafka's tools.

Called by every command of ``streamgroups_cli`` that connects to a cluster. The file is the Java properties file of
``kafka-consumer-groups.sh --command-config``, with Java's names and the escapes of ``java.util.Properties``. Those
tools accept a file of a consumer or producer, and ignore properties that do not affect connections. So does this
module. Source: Kafka's command line tools; ``java.util.Properties``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups_kafka.client.config import ClientConfig
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


_NO_ADDRESS = (
    "Pass --bootstrap-server HOST:PORT, set STREAMGROUPS_BOOTSTRAP_SERVER, or choose a cluster with --context or "
    "'streamgroups contexts use'."
)


def command_config(
    bootstrap_server: str | None, file: Path | None = None, settings: Mapping[str, str] | None = None
) -> ClientConfig:
    """Returns the client configuration for the arguments of a command.

    Args:
        bootstrap_server: ``host:port[,host:port]``. It overrides ``bootstrap.servers`` in the file and the settings.
        file: a Java properties file, or ``None``.
        settings: single settings (``--kafka``). They override the file.

    Returns:
        The checked configuration. Its ``repr`` contains no secrets.

    Raises:
        InvalidOption: if no server is given, the file cannot be read, or a property in it is rejected. The error
            contains the file and the property, and never a secret.

    >>> command_config("broker:9092")
    ClientConfig(bootstrap.servers='broker:9092')
    >>> command_config(None)
    Traceback (most recent call last):
    ...
    streamgroups.errors.InvalidOption: The broker address is missing. Pass --bootstrap-server HOST:PORT, set \
STREAMGROUPS_BOOTSTRAP_SERVER, or choose a cluster with --context or 'streamgroups contexts use'.
    """
    given = {} if file is None else _connecting(read_properties(file))
    given.update(settings or {})
    if bootstrap_server is not None:
        given["bootstrap.servers"] = bootstrap_server
    if not given.get("bootstrap.servers", "").strip():
        raise InvalidOption("The broker address is missing.", remedy=_NO_ADDRESS)
    try:
        return ClientConfig.from_options(given)
    except InvalidOption as e:
        rejection = as_in_a_file(e)
    # Raised outside the handler, so that the chain of errors does not contain the cause of the first one.
    where = " or ".join(filter(None, ["--kafka" if settings else "", str(file) if file else ""]))
    raise InvalidOption(f"{where or '--bootstrap-server'}: {rejection.what}", remedy=rejection.remedy)


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
        return javaproperties.loads(file.read_text(encoding="utf-8"))
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


def _connecting(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name.strip().lower() not in _NOT_ABOUT_CONNECTING}


def as_in_a_file(error: StreamGroupsError) -> StreamGroupsError:
    """Returns the same error for the author of a properties file, where names have no prefix.

    >>> as_in_a_file(InvalidOption("Option 'kafka.sasl.mechanizm' is unknown.")).what
    "Option 'sasl.mechanizm' is unknown."
    """
    return error.with_text(error.what.replace("'kafka.", "'"), error.remedy.replace("'kafka.", "'"))
