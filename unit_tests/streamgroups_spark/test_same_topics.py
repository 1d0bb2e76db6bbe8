"""P1: a processor does not read its own output by a second connection to the same cluster."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.processors.reading import processor_of
from streamgroups_spark.processors.same_topics import reject_same_topic

CLUSTERS = {"prod": "a", "prod-again": "a", "test": "b"}


def _check(connection: str, topic: str, source: dict[str, Any], clusters: dict[str, str] | None = None) -> None:
    document = {
        "name": "late",
        "source": {"connection": "prod", **source},
        "sink": {"connection": connection, "topic": topic},
        "dead_letters": {"connection": "prod", "topic": "letters"},
    }
    reject_same_topic(processor_of(document), (CLUSTERS if clusters is None else clusters).__getitem__)


@pytest.mark.parametrize("source", [{"subscribe": "a,flights"}, {"subscribePattern": "^fl"}], ids=["names", "pattern"])
def test_P1_a_topic_of_the_same_cluster_is_not_read_and_written(source: dict[str, str]) -> None:
    with pytest.raises(
        InvalidOption,
        match="Topic 'flights' of 'sink' is also a topic of 'source': the connections 'prod-again' and 'prod' have",
    ):
        _check("prod-again", "flights", source)
    _check("test", "flights", source)


def test_P1_rows_and_dead_letters_have_different_topics() -> None:
    with pytest.raises(InvalidOption, match="Topic 'letters' of 'sink' is also a topic of 'dead_letters'"):
        _check("prod-again", "letters", {"subscribe": "flights"})
    _check("test", "letters", {"subscribe": "flights"})


@pytest.mark.parametrize("connection", ["prod", "unknown"])
def test_P1_no_request_is_sent_for_different_topics(connection: str) -> None:
    _check(connection, "delays", {"subscribe": "flights"}, {})
