"""The features of a version of Spark for data sources in Python.

Used by ``extras``, by ``pyspark_streamgroups`` and by ``streamgroups_spark.internals.spark_api``, which decide once per
process. Pure. Source: ``pyspark/sql/datasource.py`` and ``python_streaming_source_runner.py`` of PySpark 4.0 to 4.3;
SPARK-55304 (admission control and ``Trigger.AvailableNow`` for sources in Python).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamgroups.errors import InvalidOption

#: The first release of PySpark whose sources in Python can read streams and return Arrow batches.
MIN_PYSPARK = (4, 0)
_ADMISSION = (4, 2)
_ARROW_API = (4, 1)
_REPLACED = (4, 2)


@dataclass(frozen=True, slots=True)
class SparkFeatures:
    """The features of one version of Spark.

    Args:
        version: the version, such as ``4.2.1``.
        passes_start: whether Spark passes the start of the next batch to ``latestOffset``. Without it there is also no
            trigger ``availableNow``, and no report of end offsets in the progress of a query.
        has_arrow_api: whether functions of columns and writers of streams have interfaces of their own for Arrow. The same
            version has introduced ``transformWithState`` for rows in Python.
        replaces_sources: whether ``sg.register`` can replace a source that Spark has registered by itself.
    """

    version: str
    passes_start: bool
    has_arrow_api: bool
    replaces_sources: bool

    def needs(self, what: str, version: str, *, otherwise: str = "") -> InvalidOption:
        """Returns the error for a feature of a newer version.

        Args:
            what: the feature, as the subject of a sentence.
            version: the first version with the feature.
            otherwise: what the user can do with this version, as the end of a sentence.

        >>> print(spark_features("4.1.4").needs("The trigger availableNow", "4.2", otherwise="use another trigger"))
        The trigger availableNow needs PySpark 4.2 or newer; this is PySpark 4.1.4. Install PySpark 4.2 or newer, or use another \
trigger.
        """
        return InvalidOption(
            f"{what} needs PySpark {version} or newer; this is PySpark {self.version}.",
            remedy=f"Install PySpark {version} or newer{', or ' if otherwise else ''}{otherwise}.",
        )


def spark_features(version: str) -> SparkFeatures:
    """Returns the features of a version of Spark.

    Args:
        version: the version of PySpark, also of a development build, such as ``4.2.0.dev1``.

    >>> spark_features("4.1.4")
    SparkFeatures(version='4.1.4', passes_start=False, has_arrow_api=True, replaces_sources=False)
    >>> spark_features("4.2.0.dev1").passes_start
    True
    """
    release = release_of(version)
    return SparkFeatures(
        version,
        passes_start=release >= _ADMISSION,
        has_arrow_api=release >= _ARROW_API,
        replaces_sources=release >= _REPLACED,
    )


def release_of(version: str) -> tuple[int, int]:
    """Returns major and minor number of a version.

    >>> release_of("4.10.0.dev1")
    (4, 10)
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
