"""The options ``--bootstrap-server``, ``--command-config`` and ``--kafka``; the first two are those of Kafka's tools.

Called by every command of ``streamgroups_cli`` that connects to a cluster. Source: Kafka's command line tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.option_values import folded
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.java_properties import connecting_properties

_NO_ADDRESS = (
    "Pass --bootstrap-server HOST:PORT, set STREAMGROUPS_BOOTSTRAP_SERVER, or choose a cluster with --context or "
    "'streamgroups connections use'."
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
STREAMGROUPS_BOOTSTRAP_SERVER, or choose a cluster with --context or 'streamgroups connections use'.
    """
    properties = {} if file is None else connecting_properties(file)
    try:
        given = folded(properties.items()) | folded((settings or {}).items())
        if bootstrap_server is not None:
            given["bootstrap.servers"] = bootstrap_server
        if given.get("bootstrap.servers", "").strip():
            return ClientConfig.from_options(given)
    except InvalidOption as e:
        rejection = as_in_a_file(e)
    else:
        raise InvalidOption("The broker address is missing.", remedy=_NO_ADDRESS)
    # Raised outside the handler, so that the chain of errors does not contain the cause of the first one.
    where = " or ".join(filter(None, ["--kafka" if settings else "", str(file) if file else ""]))
    raise InvalidOption(f"{where or '--bootstrap-server'}: {rejection.what}", remedy=rejection.remedy)


def as_in_a_file(error: StreamGroupsError) -> StreamGroupsError:
    """Returns the same error for the author of a properties file, where names have no prefix.

    >>> as_in_a_file(InvalidOption("Option 'kafka.sasl.mechanizm' is unknown.")).what
    "Option 'sasl.mechanizm' is unknown."
    """
    return error.with_text(error.what.replace("'kafka.", "'"), error.remedy.replace("'kafka.", "'"))
