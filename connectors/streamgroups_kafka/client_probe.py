"""Looks at the Kafka client for ``streamgroups doctor``: does it load, which librdkafka, which reader.

Called by ``streamgroups.cli.doctor``; judged by :mod:`streamgroups.doctor.installation`. It must import where nothing else of
this package does: that is what it reports.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util

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
    >>> reader.native == (not reader.reason)
    True
    """
    # The native reader is not part of this version yet.
    if importlib.util.find_spec("streamgroups_kafka.native") is None:
        return Reader(False, "This version has no native reader.")
    found = importlib.import_module("streamgroups_kafka.native").status()
    return Reader(found.available, found.reason, found.librdkafka_path)
