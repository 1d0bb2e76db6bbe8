"""P1, S4: the file of a processor is checked with the rules of the options that it sets, before it runs or is stored."""

from __future__ import annotations

import pytest

from streamgroups_spark.processors.yaml_text import read_text

WINDOWS = "windows: {{on: ts, by: [k], window: {{tumbling: 1h}}, aggregate: {{n: count(*)}}, {}}}"


def problems(source: str = "", step: str = "", sink: str = "", more: str = "") -> list[tuple[str, int]]:
    """The field and the line of each problem of a file."""
    text = f"""name: late
source: {{connection: prod, subscribe: flights, {source}}}
steps: [{step}]
sink: {{connection: prod, topic: late, {sink}}}
{more}
"""
    processor, found = read_text(text.encode(), "late.yaml")
    assert (processor is None) is bool(found)
    return [(it.field, it.line) for it in found]


@pytest.mark.parametrize(
    "option",
    [
        "startingOffsets: erliest",
        "maxOffsetsPerTrigger: 0",
        "maxOffsetsPerTrigger: 1e3",
        "onRestart: chekpoint",
        "includeHeaders: yes",
        "emitEvery: garbage",
        "emitEvery: 0 records",
        "watermarkDelay: 10",
        "leaseTimeout: 0s",
        "startingTimestamp: 20130101",
        "kafka.sesion.timeout.ms: 1",
        "kafka.auto.offset.reset: latest",
    ],
)
def test_P1_an_option_that_the_source_rejects_is_a_problem_of_its_line(option: str) -> None:
    assert problems(source=option) == [(f"source.{option.partition(':')[0]}", 2)]


def test_P1_all_invalid_options_are_reported_at_once() -> None:
    found = problems(source="maxOffsetsPerTrigger: 0, onRestart: chekpoint, minPartitions: 2")
    assert [field for field, _ in found] == ["source.maxOffsetsPerTrigger", "source.onRestart"]


def test_P1_options_that_contradict_each_other_are_one_problem() -> None:
    assert problems(source="minOffsetsPerTrigger: 10, maxOffsetsPerTrigger: 2") == [("source", 2)]


@pytest.mark.parametrize(
    "option",
    ["kafka.session.timeout.ms: 6000", "kafka.sasl.mechanism: PLAIN", "watermarkDelay: none", "emitEvery: none"],
)
def test_P1_options_that_are_valid_with_the_connection_have_no_problem(option: str) -> None:
    assert problems(source=option) == []


@pytest.mark.parametrize(
    ("field", "part"),
    [
        ("steps[0].dedup.horizon", {"step": "{dedup: {id: key, horizon: 0s}}"}),
        ("steps[0].windows.buckets", {"step": WINDOWS.format("buckets: 0")}),
        (
            "steps[0].windows.watermark_delay",
            {"step": WINDOWS.format("boundary: processingTime, watermark_delay: 5s")},
        ),
        ("sink.transaction_timeout", {"sink": "transaction_timeout: 0s"}),
        ("dead_letters.max_share", {"more": "dead_letters: {connection: prod, topic: dlq, max_share: 2}"}),
        ("dead_letters.max_per_batch", {"more": "dead_letters: {connection: prod, topic: dlq, max_per_batch: -1}"}),
        ("trigger.processingTime", {"more": "trigger: {processingTime: -5s}"}),
        ("trigger.availableNow", {"more": "trigger: {availableNow: false}"}),
    ],
)
def test_P1_a_value_outside_its_bounds_is_a_problem(field: str, part: dict[str, str]) -> None:
    assert [found for found, _ in problems(**part)] == [field]
