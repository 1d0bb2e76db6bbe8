"""G14: the limit of groups costs one request in a small cluster, and never fails a query by an error of the count."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from streamgroups.coordination.reset_protocol import members_group_of, resets_group_of
from streamgroups.errors import NotAuthorized
from streamgroups_kafka.admin import connection
from streamgroups_kafka.admin.group_limit import GroupLimit
from streamgroups_kafka.client.config import ClientConfig

CONFIG = ClientConfig.from_options({"bootstrap.servers": "broker.invalid:9092"})


class Listing:
    """The groups of a cluster, or an error."""

    def __init__(self, *group_ids: str, error: Exception | None = None) -> None:
        self._group_ids, self._error = frozenset(group_ids), error

    def group_ids(self) -> frozenset[str]:
        """See :meth:`streamgroups_kafka.admin.cluster.KafkaCluster.group_ids`."""
        if self._error is not None:
            raise self._error
        return self._group_ids


def limit(listing: Any, most: int) -> GroupLimit:
    return GroupLimit(listing, CONFIG, "board", most)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[ClientConfig]:
    """The connections that count the committed offsets of groups. Each is rejected."""
    opened: list[ClientConfig] = []

    def connect(config: ClientConfig, *, timeout_s: float) -> None:
        opened.append(config)
        raise NotAuthorized("The groups could not be listed.", remedy="Grant Describe.")

    monkeypatch.setattr(connection, "AdminSession", connect)
    return opened


def test_G14_metadata_groups_and_the_group_itself_do_not_count(connections: list[ClientConfig]) -> None:
    others = [name for group in ("a", "b") for name in (group, members_group_of(group), resets_group_of(group))]
    listing = Listing("board", members_group_of("board"), *others)
    limit(listing, 3).check(["flights"])
    assert connections == [], "fewer groups than the limit need no further request"
    limit(listing, 2).check(["flights"])
    assert connections == [CONFIG]


@pytest.mark.parametrize("listing", [Listing("a", "b"), Listing(error=NotAuthorized("No.", remedy="Ask."))])
def test_G14_an_error_of_the_count_is_logged_only(
    listing: Listing, connections: list[ClientConfig], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        limit(listing, 2).check(["flights"])
    (record,) = caplog.records
    assert "topics of group 'board' cannot be compared with the limit of 2" in record.getMessage()
