"""``--bootstrap-server``, ``--command-config`` and ``--kafka``: the first two as Kafka's own tools take them.

Called by every command of ``streamgroups_cli`` that talks to a cluster. The file is the Java properties file that
``kafka-consumer-groups.sh --command-config`` reads: its names are Java's, its escapes ``java.util.Properties``'. Those tools
let a consumer's or a producer's file pass and ignore what is not about connecting; so does this.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.jaas import words

#: What files made for consumers and producers hold beside the connection. No command reads or writes records.
_NOT_ABOUT_CONNECTING = words(
    """
    group.id auto.offset.reset enable.auto.commit auto.commit.interval.ms key.deserializer value.deserializer
    partition.assignment.strategy interceptor.classes allow.auto.create.topics session.timeout.ms heartbeat.interval.ms
    group.protocol group.remote.assignor key.serializer value.serializer acks batch.size buffer.memory compression.type
    delivery.timeout.ms enable.idempotence linger.ms max.block.ms max.request.size partitioner.class retries
    transactional.id transaction.timeout.ms
    """
)


def command_config(
    bootstrap_server: str | None, file: Path | None = None, settings: Mapping[str, str] | None = None
) -> ClientConfig:
    """How to reach a cluster, from what was given on the command line.

    Args:
        bootstrap_server: ``host:port[,host:port]``; wins over ``bootstrap.servers`` in the file and the settings.
        file: a Java properties file, or None.
        settings: settings given one by one (``--kafka``); they win over the file.

    Returns:
        The checked configuration; it prints without secrets.

    Raises:
        InvalidOption: neither names a server, the file cannot be read, or a property in it is refused. It names the file and
            the property, and never repeats a secret.

    >>> command_config("broker:9092")
    ClientConfig(bootstrap.servers='broker:9092')
    >>> command_config(None)
    Traceback (most recent call last):
    ...
    streamgroups.errors.InvalidOption: The broker address is missing. Pass --bootstrap-server HOST:PORT.
    """
    given = {} if file is None else _connecting(read_properties(file))
    given.update(settings or {})
    if bootstrap_server is not None:
        given["bootstrap.servers"] = bootstrap_server
    if not given.get("bootstrap.servers", "").strip():
        raise InvalidOption("The broker address is missing.", remedy="Pass --bootstrap-server HOST:PORT.")
    try:
        return ClientConfig.from_options(given)
    except InvalidOption as e:
        rejection = as_in_a_file(e)
    # Raised here, not above: the chain of errors must not show what the first one was raised from.
    where = " or ".join(filter(None, ["--kafka" if settings else "", str(file) if file else ""]))
    raise InvalidOption(f"{where or '--bootstrap-server'}: {rejection.what}", remedy=rejection.remedy)


def read_properties(file: Path) -> dict[str, str]:
    r"""The properties in a Java properties file: comments, continued lines and escapes as Java reads them.

    Args:
        file: its path. Java reads Latin-1 and, where a tool says so, UTF-8; this reads UTF-8, of which ASCII is a part.

    Raises:
        InvalidOption: it cannot be read, or an escape in it is broken.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".properties") as written:
    ...     _ = written.write("# TLS\nsecurity.protocol = SSL\nssl.key.password:a\\\n   b")
    ...     written.flush()
    ...     read_properties(Path(written.name))
    {'security.protocol': 'SSL', 'ssl.key.password': 'ab'}
    """
    # Most commands are given no file.
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
    # The line at fault may hold a password: it is not repeated, and neither is the error that shows it.
    raise InvalidOption(what, remedy="Pass the path of a Java properties file; double each backslash in a value.")


def _connecting(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name.strip().lower() not in _NOT_ABOUT_CONNECTING}


def as_in_a_file(error: StreamGroupsError) -> StreamGroupsError:
    """The same error for whoever wrote a properties file, where names have no prefix.

    >>> as_in_a_file(InvalidOption("Option 'kafka.sasl.mechanizm' is unknown.")).what
    "Option 'sasl.mechanizm' is unknown."
    """
    return error.with_text(error.what.replace("'kafka.", "'"), error.remedy.replace("'kafka.", "'"))
