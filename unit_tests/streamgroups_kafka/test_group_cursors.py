"""Arguments that GroupCursors rejects before it sends a request."""

from __future__ import annotations

import pytest

from streamgroups.errors import InvalidOption
from streamgroups_kafka.cursors.group_cursors import GroupCursors


@pytest.mark.parametrize(
    ("settings", "more", "message"),
    [
        ({"kafka.group.id": "billing"}, {}, r"Leave out 'group\.id'"),
        ({"client.id": "worker-1"}, {}, r"'client\.id'"),
        ({"sasl.pasword": "hunter2"}, {}, r"sasl\.pasword"),
        ({}, {"signing_key": b"short"}, "5 bytes; at least 16"),
    ],
)
def test_invalid_settings_are_rejected_and_secrets_are_not_shown(
    settings: dict[str, str], more: dict[str, bytes], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message) as rejection:
        GroupCursors("localhost:9092", settings, signing_key=more.get("signing_key"))
    assert "hunter2" not in str(rejection.value)
    assert "short'" not in str(rejection.value)
