"""Looks at the Kafka client for ``streamgroups doctor``: does it load, which librdkafka, which reader.

Called by ``streamgroups_cli.doctor``; judged by :mod:`streamgroups.doctor.installation`. It must import where nothing else of
this package does: that is what it reports.
"""

from __future__ import annotations

import importlib.metadata
import os

from streamgroups.doctor.installation import ClientLibrary, NotLoadable, Reader


def probe_client() -> ClientLibrary | NotLoadable:
    """The versions of confluent-kafka and of the librdkafka that it has loaded.

    >>> isinstance(probe_client(), ClientLibrary)
    True
    """
    try:
        import confluent_kafka
    except ImportError as e:
        return NotLoadable(str(e).rstrip("."))
    return ClientLibrary(importlib.metadata.version("confluent-kafka"), confluent_kafka.libversion()[0])


def probe_reader() -> Reader:
    """Which reader Spark's tasks will use. Only where :func:`probe_client` found a client.

    >>> reader = probe_reader()
    >>> reader.works == (not reader.reason)
    True
    """
    from streamgroups_kafka.native import READER_VARIABLE, status

    found = status()
    wanted = os.environ.get(READER_VARIABLE, "")
    return Reader(found.available, found.reason, found.remedy, found.librdkafka_path, wanted)
