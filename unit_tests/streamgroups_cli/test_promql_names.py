"""O3: the queries of the dashboard and of the alert rules name metrics and labels that are exported.

``integration_tests/test_prometheus_evaluates_the_dashboard.py`` evaluates them with a real Prometheus.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from streamgroups_cli.metrics import alert_rules_yaml, dashboard_json

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "site"))
metric_tables = importlib.import_module("metric_tables")

#: Prometheus adds them to the series of each target.
OF_TARGETS = {"instance", "job"}
#: The listener exports it beside the tables.
WITHOUT_TABLE: dict[str, set[str]] = {"streamgroups_query_event_errors_total": set()}
_SELECTOR = re.compile(r"\b(streamgroups_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")


def metrics() -> dict[str, set[str]]:
    """The labels of each exported metric."""
    found = dict(WITHOUT_TABLE)
    for kind in ("exporter", "listener"):
        for name, labels, _ in metric_tables.rows(kind):
            found.setdefault(name, set()).update(re.findall(r"\w+", labels))
    return found


def used() -> Iterator[tuple[str, str, set[str]]]:
    """Each expression with its place, and the labels that its texts name."""
    dashboard = json.loads(dashboard_json())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
    for group in yaml.safe_load(alert_rules_yaml())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))


def labels_of(expr: str, exported: dict[str, set[str]]) -> set[str]:
    """The labels of the result: those of its outermost grouping, or those of its metrics.

    >>> sorted(labels_of("sum by (group) (a_total)", {}))
    ['group']
    """
    groupings = _GROUPING.findall(expr)
    if groupings and re.match(r"\s*(sum|min|max|count|avg)\b", expr):
        return set(re.findall(r"\w+", groupings[0]))
    return set.intersection(*(exported[name] for name, _ in _SELECTOR.findall(expr)))


@pytest.mark.parametrize(("place", "expr", "named"), list(used()))
def test_names_and_labels_exist(place: str, expr: str, named: set[str]) -> None:
    exported = metrics()
    selectors = _SELECTOR.findall(expr)
    assert selectors, place
    for name, matchers in selectors:
        assert name in exported, place
        assert set(_LABEL.findall(matchers)) <= exported[name], (place, name)
    of_all = set.union(*(exported[name] for name, _ in selectors)) | OF_TARGETS
    assert {label for grouping in _GROUPING.findall(expr) for label in re.findall(r"\w+", grouping)} <= of_all, place
    assert named <= labels_of(expr, exported) | OF_TARGETS, place


def test_the_variables_of_the_dashboard_exist() -> None:
    exported = metrics()
    variables = [
        it["query"]["query"] for it in json.loads(dashboard_json())["templating"]["list"] if it["type"] == "query"
    ]
    found = [re.fullmatch(r"label_values\((\w+), (\w+)\)", query) for query in variables]
    assert [match is not None and match[2] in exported[match[1]] for match in found] == [True, True, True]


def test_each_column_of_a_table_panel_exists() -> None:
    """A transformation of Grafana that names another label shows nothing."""
    exported = metrics()
    for panel in json.loads(dashboard_json())["panels"]:
        named: set[str] = set()
        for it in panel.get("transformations", []):
            named |= set(it.get("options", {}).get("excludeByName", {})) | set(
                it.get("options", {}).get("indexByName", {})
            )
        of_panel = {"Time", "Value", "__name__", *OF_TARGETS}
        for target in panel["targets"]:
            of_panel |= labels_of(target["expr"], exported)
            of_panel.add(f"Value #{target.get('refId')}")
        assert named <= of_panel, panel["title"]
