"""The check of secrets (I10). Called by :mod:`~integration_tests.history.checker`."""

from __future__ import annotations

from collections.abc import Iterator

from integration_tests.history.anomalies import Anomaly, Name
from integration_tests.history.events import LogsSearched
from integration_tests.history.view import History


def check_secrets(history: History) -> Iterator[Anomaly]:
    """I10: no file contains a planted secret."""
    findings = [finding for it in history.of(LogsSearched) for finding in it.findings]
    if findings:
        yield Anomaly(Name.SHOWN_SECRET, "I10", len(findings), findings[0])
