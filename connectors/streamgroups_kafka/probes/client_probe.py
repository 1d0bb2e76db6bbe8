"""Probes the Kafka client for ``streamgroups doctor``: whether it loads, its librdkafka, and its reader.

Called by ``streamgroups_cli.doctor``; :mod:`streamgroups.doctor.installation_checks` evaluates the result. This module must
import even if the others of this package do not, because it reports that. Source: confluent-kafka's ``libversion``;
:mod:`streamgroups_kafka.native`.
"""

from __future__ import annotations

import importlib.metadata
import os

from streamgroups.doctor.installation_checks import ClientLibrary, NotLoadable, Reader


def probe_client() -> ClientLibrary | NotLoadable:
    """Returns the versions of confluent-kafka and of the librdkafka that it has loaded.

    >>> isinstance(probe_client(), ClientLibrary)
    True
    """
    try:
        import confluent_kafka
    except ImportError as e:
        return NotLoadable(str(e).rstrip("."))
    return ClientLibrary(importlib.metadata.version("confluent-kafka"), confluent_kafka.libversion()[0])


def probe_reader() -> Reader:
    """Returns the reader that Spark's tasks use. Requires that :func:`probe_client` found a client.

    >>> reader = probe_reader()
    >>> reader.works == (not reader.reason)
    True
    """
    from streamgroups_kafka.native import READER_VARIABLE, status

    found = status()
    required = os.environ.get(READER_VARIABLE, "")
    return Reader(found.available, found.reason, found.remedy, found.librdkafka_path, required)
