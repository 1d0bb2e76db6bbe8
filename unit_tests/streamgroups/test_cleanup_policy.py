"""P5, S12, X9: which policies of a topic delete records that must be kept."""

from __future__ import annotations

import pytest

from streamgroups.cleanup_policy import check_compacted, check_not_compacted
from streamgroups.errors import InvalidOption


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete, compact", ""])
def test_P5_a_topic_of_redriven_ids_that_deletes_them_is_rejected(policy: str) -> None:
    what = r"'orders\.dlq\.redriven' .*, so they are sent again\. Set it with: .* cleanup\.policy=compact"
    with pytest.raises(InvalidOption, match=what):
        check_compacted("orders.dlq.redriven", policy, "they are sent again")
    check_compacted("orders.dlq.redriven", "compact", "they are sent again")


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete, compact"])
def test_S12_a_topic_that_keeps_only_the_last_record_of_a_key_is_rejected(policy: str) -> None:
    what = r"'by-airport' has cleanup\.policy=.*, so windows are wrong\. Use another topic, or set it with: .*=delete"
    with pytest.raises(InvalidOption, match=what):
        check_not_compacted("by-airport", policy, "windows are wrong")
    for other in ("delete", ""):
        check_not_compacted("by-airport", other, "windows are wrong")
