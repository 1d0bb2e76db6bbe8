"""The root cause is found in error texts of Spark, and nowhere else."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import BrokerUnreachable, DataLoss, FencedMember, StreamGroupsError, UnknownTopic
from streamgroups.printable import printable
from streamgroups.supervision.failure_causes import failure_in, failure_of

EVENTS = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "golden" / "spark_events_4.2.jsonl").read_text().splitlines()
]


def test_recorded_failures() -> None:
    texts = [e["exception"] for e in EVENTS if e["kind"] == "terminated" and e["exception"]]
    assert [(f.what, f.code) for f in map(failure_in, texts)] == [
        (
            "UnknownTopic: Topic 'nonesuch' does not exist (the cluster shows flights, planes). "
            "Create it, correct its name, or allow this user to Describe it.",
            "unknown_topic",
        ),
        ("ZeroDivisionError: division by zero", None),
        ("org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] boom", None),
    ]


def text_of(error: Exception) -> str:
    """As Spark reports it of a task: inside Java's text, and again as its cause."""
    try:
        raise error
    except type(error):
        python = traceback.format_exc()
    return (
        f"Job aborted due to stage failure: Task 0 failed: org.apache.spark.api.python.PythonException: {python}\n"
        f"\tat org.apache.spark.Task.run(Task.scala:1)\nCaused by: org.apache.spark.api.python.PythonException: {python}\n"
        "\tat org.apache.spark.Task.run(Task.scala:1)\n"
    )


@given(
    st.sampled_from(StreamGroupsError.__subclasses__()),
    st.text(
        st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="\x7f\x85\xa0"), min_size=1, max_size=60
    ),
)
def test_every_error_of_ours_is_known(error: type[StreamGroupsError], text: str) -> None:
    raised = error(text, remedy="Do something.")
    found = failure_in(text_of(raised))
    assert (found.error, found.code) == (error, error.code)
    assert found.what == failure_of(raised).what == f"{error.__name__}: {printable(text)} Do something."


def test_what_an_error_led_to_counts_and_not_the_error() -> None:
    def caught(first: Exception, second: Exception) -> Exception:
        try:
            try:
                raise first
            except type(first):
                raise second  # noqa: B904 - as users do
        except type(second) as e:
            return e

    lost, other = FencedMember("Another has it."), ValueError("what a user made of it")
    assert failure_in(text_of(caught(lost, other))).what == "ValueError: what a user made of it"
    assert failure_in(text_of(caught(other, lost))).error is FencedMember


@pytest.mark.parametrize(
    "value",
    [
        "streamgroups.errors.DataLoss: no",
        "\nstreamgroups.errors.DataLoss: no",
        "\nTraceback (most recent call last):\nstreamgroups.errors.DataLoss: no",
        "Traceback (most recent call last):\nstreamgroups.errors.DataLoss: no",
        "\n[DATA_SOURCE_NOT_FOUND] Failed to find the data source: streamgroups.",
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: streamgroups.",
    ],
)
def test_data_of_a_record_in_a_message_is_not_the_error(value: str) -> None:
    """Messages often contain the value that they reject, and a topic of logs contains errors of this library."""
    raised = failure_in(text_of(ValueError(f"cannot post {value}")))
    assert (raised.what, raised.error) == (f"ValueError: cannot post {value}".splitlines()[0].strip(), None)
    cast = failure_in(
        f"org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '{value}' is malformed"
    )
    assert cast.what.startswith("org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '")
    assert cast.error is None


@pytest.mark.parametrize(
    "before",
    [
        "",
        "org.apache.spark.api.python.PythonException: ",
        "[STREAM_FAILED] Query [id = 6, runId = 7] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] "
        "Failed when Python streaming data source perform latestOffset: ",
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent "
        "failure: Lost task 0.3 in stage 1.0 (TID 7) (host executor driver): org.apache.spark.api.python.PythonException: ",
    ],
)
def test_the_error_is_found_if_spark_hides_tracebacks(before: str) -> None:
    found = failure_in(f"{before}streamgroups.errors.DataLoss: Offsets are gone.\n\tat org.apache.spark.X(X.scala:1)")
    assert (found.what, found.error) == ("DataLoss: Offsets are gone.", DataLoss)
    other = failure_in(f"{before}ValueError: streamgroups.errors.DataLoss: no\n\tat org.apache.spark.X(X.scala:1)")
    assert other.error is None


def test_the_error_in_a_group_of_exceptions_is_found() -> None:
    python = """\
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 1, in f
  |     raise ExceptionGroup("two sinks", errors)
  | ExceptionGroup: two sinks (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "a.py", line 2, in g
    |     raise DataLoss("gone")
    | streamgroups.errors.DataLoss: gone
    +------------------------------------
"""
    assert failure_in(f"org.apache.spark.SparkException: x: {python}").error is DataLoss


def test_a_line_of_a_program_is_not_the_begin_of_a_traceback() -> None:
    text = (
        'x: Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
        "    # Traceback (most recent call last):\nstreamgroups.errors.DataLoss: gone"
    )
    assert failure_in(text).error is DataLoss


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "org.apache.spark.SparkException: Job aborted SQLSTATE: 38000\n\tat x",
            "org.apache.spark.SparkException: Job aborted",
        ),
        ("\n  \nx\ny", "x"),
        ("", "an error without a message"),
        ("Traceback (most recent call last):\n  cut off", "Traceback (most recent call last):"),
        ("x" * 600, "x" * 499 + "…"),
    ],
)
def test_other_texts_give_one_line(text: str, what: str) -> None:
    found = failure_in(text)
    assert (found.what, found.error) == (what, None)


@given(st.text())
def test_any_text_gives_one_line(text: str) -> None:
    found = failure_in(text)
    assert len(found.what.splitlines()) == 1
    assert len(found.what) <= 500


def test_an_error_that_was_derived_from_ours() -> None:
    class Elsewhere(BrokerUnreachable):
        pass

    assert failure_of(Elsewhere("x\ny")).error is BrokerUnreachable
    assert failure_of(DataLoss("x\ny")).what == r"DataLoss: x\x0ay"
    assert failure_of(UnknownTopic("")).code == "unknown_topic"
