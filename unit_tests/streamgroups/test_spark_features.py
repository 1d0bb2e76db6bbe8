"""Which features a version of Spark has, and the errors for those that it lacks."""

from __future__ import annotations

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.spark_features import MIN_PYSPARK, release_of, spark_features


@pytest.mark.parametrize(
    ("version", "passes_start", "has_arrow_api", "replaces_sources"),
    [
        ("4.0.0", False, False, False),
        ("4.0.5", False, False, False),
        ("4.1.0", False, True, False),
        ("4.1.4", False, True, False),
        ("4.2.0", True, True, True),
        ("4.2.0.dev1", True, True, True),
        ("4.10.1", True, True, True),
        ("5.0.0", True, True, True),
    ],
)
def test_features(version: str, passes_start: bool, has_arrow_api: bool, replaces_sources: bool) -> None:
    found = spark_features(version)
    assert found.version == version
    assert (found.passes_start, found.has_arrow_api, found.replaces_sources) == (
        passes_start, has_arrow_api, replaces_sources,
    )  # fmt: skip


@pytest.mark.parametrize(("version", "release"), [("4.2.1", (4, 2)), ("4.12.0rc1", (4, 12)), ("unknown", (0, 0))])
def test_releases(version: str, release: tuple[int, int]) -> None:
    assert release_of(version) == release


def test_the_first_release_is_supported() -> None:
    assert spark_features(".".join(map(str, MIN_PYSPARK))).version == "4.0"


def test_the_error_names_both_versions_and_the_remedy() -> None:
    error = spark_features("4.0.5").needs("A codec", "4.1")
    assert isinstance(error, InvalidOption)
    assert str(error) == ("A codec needs PySpark 4.1 or newer; this is PySpark 4.0.5. Install PySpark 4.1 or newer.")
