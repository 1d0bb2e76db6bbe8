"""Hadoop's client for S3, with which Spark writes a checkpoint on an object store. It is not part of PySpark's wheel.

Used by ``test_checkpoints_on_s3`` and ``benchmarks.store_checkpoints``. The jars come from a Maven repository into the cache of the
embedded broker's jars, as Spark's own connector. Hadoop names Amazon's whole SDK as its dependency, 600 MB; the client uses
the modules for S3.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyspark

from component_tests.object_store import ObjectStore
from streamgroups.errors import StreamGroupsError
from streamgroups_broker._cache import cached_jars
from streamgroups_broker._ivy import fetch_exactly, fetch_with_dependencies
from streamgroups_broker._java import find_java

#: The Hadoop release of the version of PySpark for which the modules are known.
_HADOOP = "3.5.0"
#: Hadoop loads the second one for its default settings.
_CLIENT = (
    f"org.apache.hadoop:hadoop-aws:{_HADOOP}",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
_SDK = tuple(f"software.amazon.awssdk:{it}:2.35.4" for it in ("s3", "s3-transfer-manager", "sts"))
#: Spark has its own version.
_OF_SPARK = "slf4j-api-"


class NoClient(Exception):
    """The client is not available on this machine. The message has the reason."""


@cache
def hadoop_s3_jars() -> tuple[Path, ...]:
    """The jars, from the cache or, once, from the network.

    Raises:
        NoClient: if PySpark has another version of Hadoop, or the jars cannot be downloaded.
    """
    jars = Path(pyspark.__file__).parent / "jars"
    if not (jars / f"hadoop-client-api-{_HADOOP}.jar").exists():
        raise NoClient(f"PySpark {pyspark.__version__} does not have Hadoop {_HADOOP}")
    try:
        java = find_java()

        def fill(directory: Path, _: str) -> None:
            fetch_exactly(directory, _CLIENT, java)
            fetch_with_dependencies(directory, _SDK, java)

        found = cached_jars("hadoop-aws", _HADOOP, fill)
    except StreamGroupsError as e:
        raise NoClient(f"Hadoop's client for S3 cannot be downloaded: {e}") from None
    return tuple(found.directory / name for name in found.jars if not name.startswith(_OF_SPARK))


def s3_settings(store: ObjectStore) -> dict[str, str]:
    """The settings by which Spark connects to a store. It reads the keys of :func:`s3_environment` too."""
    return {
        "spark.hadoop.fs.s3a.endpoint": store.url,
        "spark.hadoop.fs.s3a.endpoint.region": "nowhere",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def s3_environment(store: ObjectStore) -> dict[str, str]:
    """The environment variables by which Python connects to a store."""
    return {name: value for name, value in store.storage_options.items() if name.startswith("AWS_")}
