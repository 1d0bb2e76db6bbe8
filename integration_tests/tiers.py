"""Which tests run in ``make test``, which takes at most 15 minutes on two cores; ``make test-long`` runs all of them.

Every promise has a test in ``make test`` (``unit_tests/test_semantics.py`` checks the numbered ones). A test that takes
more than 20 seconds on two busy cores is left out where a quicker one has the same number. A second protocol or a second
sink is left out where the code below the test is the same, and where contract tests run with both.
"""

from __future__ import annotations

import pytest

LONG = pytest.mark.long
#: The behavior of a query does not depend on the protocol. Contract tests run with both.
EITHER_PROTOCOL = pytest.mark.parametrize("protocol", [pytest.param("classic", marks=LONG), "consumer"])
#: The decisions about a ledger do not depend on the sink. The component tests run with both.
EITHER_SINK = pytest.mark.parametrize("target", ["postgres", pytest.param("delta", marks=LONG)], indirect=True)
