"""P4: a function that raises for some records; each record stays in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from streamgroups.dlq.bad_record_search import ErrorClasses
from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import FunctionFailed
from streamgroups_spark.dlq.safe_stage import SafeStage
from streamgroups_spark.dlq.user_functions import FUNCTIONS
from unit_tests.extreme_times import EXTREME_TIMES_US, extreme_columns

NEW_YORK = "America/New_York"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LETTER = pa.struct(
    [
        ("step", pa.string()),
        ("error_class", pa.string()),
        ("error", pa.string()),
        ("details", pa.map_(pa.string(), pa.string())),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", NEW_YORK)),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
SOURCE = ("topic", "partition", "offset", "timestamp", "key", "value")
RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", NEW_YORK)),
    ]
)
PRICE = pa.schema([("price", pa.float64())])


def records(values: list[bytes]) -> pa.RecordBatch:
    count = len(values)
    columns = [[b"k"] * count, values, ["orders"] * count, [3] * count, list(range(100, 100 + count))]
    times = pa.array([1_000_000 * it for it in range(count)], pa.timestamp("us", NEW_YORK))
    return pa.record_batch([*map(pa.array, columns[:3]), pa.array(columns[3], pa.int32()), columns[4], times], RECORDS)


def pandas_price(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(price=[float(json.loads(it)["price"]) for it in frame["value"]])


def arrow_price(table: pa.Table) -> pa.Table:
    return pa.table({"price": [float(json.loads(it)["price"]) for it in table["value"].to_pylist()]})


def record_price(record: dict[str, Any]) -> dict[str, Any]:
    record["price"] = float(json.loads(record["value"])["price"])
    return record


PRICES: dict[str, Callable[[Any], Any]] = {"pandas": pandas_price, "arrow": arrow_price, "record": record_price}


def stage(
    function: Callable[[Any], Any],
    takes: str,
    output: pa.Schema = PRICE,
    *,
    source: tuple[str, ...] = SOURCE,
    given: tuple[str, ...] = tuple(RECORDS.names),
    fail_on: ErrorClasses = (OSError,),
    step: str = "price",
) -> SafeStage:
    kept = [it for it in RECORDS if it.name not in output.names]
    schema = pa.schema([*kept, *output, pa.field(COLUMN, LETTER)])
    return SafeStage(FUNCTIONS[takes](function, "price_of", output, fail_on), step, given, source, schema)


def run(safely: SafeStage, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return pa.Table.from_batches(list(safely(batches)), schema=safely._schema).to_pylist()


GOOD = st.floats(0, 1000).map(lambda it: json.dumps({"price": it}).encode())
POISON = st.sampled_from([b"", b"{", b"\xff", b"[]", b'{"cost": 1}', b'{"price": "one"}', b'{"price": null}'])


@pytest.mark.parametrize("takes", PRICES)
@given(values=st.lists(GOOD | POISON, max_size=40))
def test_P4_exactly_the_failing_records_become_letters_in_their_places(takes: str, values: list[bytes]) -> None:
    def price(value: bytes) -> float | None:
        try:
            return float(json.loads(value)["price"])
        except Exception:
            return None

    rows = run(stage(PRICES[takes], takes), records(values))
    assert [row["offset"] for row in rows] == list(range(100, 100 + len(values)))
    assert [row["price"] for row in rows] == [price(it) for it in values]
    for row, value in zip(rows, values, strict=True):
        letter = row[COLUMN]
        assert (letter is None) == (price(value) is not None)
        if letter is not None:
            assert {name: letter[name] for name in SOURCE} == {name: row[name] for name in SOURCE}
            assert (letter["step"], letter["headers"], letter["value"]) == ("price", None, value)


@pytest.mark.parametrize("takes", PRICES)
def test_P4_a_letter_contains_the_error_and_its_place_in_the_code_of_the_user(takes: str) -> None:
    [good, bad] = run(stage(PRICES[takes], takes), records([b'{"price": 1}', b'{"cost": 2}']))
    assert good[COLUMN] is None
    assert (bad[COLUMN]["error_class"], bad[COLUMN]["error"]) == ("KeyError", "'price'")
    assert bad[COLUMN]["details"][0][0] == "at"
    assert bad[COLUMN]["details"][0][1].startswith("test_safe_stage.py:")


def test_P4_the_place_is_not_in_a_library() -> None:
    [row] = run(stage(record_price, "record"), records([b"{"]))
    assert row[COLUMN]["error_class"] == "JSONDecodeError"
    assert row[COLUMN]["details"][0][1].endswith("in record_price")


def test_P4_a_text_has_no_secret_no_control_character_and_a_maximum_length() -> None:
    def fails(_record: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("cannot reach postgres://ann:hunter2@db\x1b[2J, password=hunter2 " + "x" * 5_000)

    [row] = run(stage(fails, "record"), records([b"1"]))
    text = row[COLUMN]["error"]
    assert "hunter2" not in text
    assert "\\x1b" in text
    assert len(text) == 1_000


def test_P4_an_error_that_cannot_be_printed_is_still_a_letter() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fails(_record: dict[str, Any]) -> dict[str, Any]:
        raise Silent

    [row] = run(stage(fails, "record"), records([b"1"]))
    assert (row[COLUMN]["error_class"], row[COLUMN]["error"]) == ("Silent", "")


def test_P4_a_record_that_is_already_dead_is_not_processed_and_keeps_its_letter() -> None:
    seen: list[bytes] = []

    def double(record: dict[str, Any]) -> dict[str, Any]:
        seen.append(record["value"])
        if record["value"] == b"b":
            raise ValueError("b")
        return {"price": 2.0}

    first = stage(double, "record")
    batch = records([b"a", b"b", b"c", b"d"])
    [once] = first([batch])

    def all_but_d(table: pa.Table) -> pa.Table:
        assert COLUMN not in table.column_names
        if b"d" in table["value"].to_pylist():
            raise KeyError("d")
        return pa.table({"price": pc.multiply(table["price"], 2)})

    second = stage(all_but_d, "arrow", step="again", given=("value", "price"))
    rows = run(second, once)
    assert seen == [b"a", b"b", b"c", b"d"]
    assert [row["price"] for row in rows] == [4.0, None, 4.0, None]
    assert [row[COLUMN] and row[COLUMN]["step"] for row in rows] == [None, "price", None, "again"]
    assert [row[COLUMN] and row[COLUMN]["error_class"] for row in rows] == [None, "ValueError", None, "KeyError"]


def test_P4_without_the_source_record_a_letter_contains_the_arguments() -> None:
    [row] = run(stage(record_price, "record", source=(), given=("value", "offset")), records([b"\xff"]))
    details = dict(row[COLUMN]["details"])
    assert (json.loads(details["record"]), details["missing"]) == ({"value": "\\xff", "offset": 100}, "key, value")
    assert [row[COLUMN][name] for name in SOURCE] == [None] * len(SOURCE)


@pytest.mark.parametrize("takes", PRICES)
def test_P4_a_value_that_does_not_fit_its_column_is_the_failure_of_its_record(takes: str) -> None:
    output = pa.schema([("n", pa.int32())])
    numbers = {b"1": 1, b"big": 2**40}
    functions: dict[str, Callable[[Any], Any]] = {
        "pandas": lambda frame: pd.DataFrame({"n": [numbers[it] for it in frame["value"]]}),
        "arrow": lambda table: pa.table({"n": [numbers[it] for it in table["value"].to_pylist()]}),
        "record": lambda record: {"n": numbers[record["value"]]},
    }
    rows = run(stage(functions[takes], takes, output), records([b"1", b"big", b"1"]))
    assert [row["n"] for row in rows] == [1, None, 1]
    assert rows[1][COLUMN]["error_class"] in {"ArrowInvalid", "OverflowError"}


def test_P4_a_function_of_records_is_called_once_for_each_record() -> None:
    calls: list[bytes] = []

    def price(record: dict[str, Any]) -> dict[str, Any]:
        calls.append(record["value"])
        if record["value"] == b"b":
            raise ValueError
        return {"price": "no number" if record["value"] == b"c" else 1.0}

    rows = run(stage(price, "record"), records([b"a", b"b", b"c", b"d"]))
    assert calls == [b"a", b"b", b"c", b"d"]
    assert [row["price"] for row in rows] == [1.0, None, None, 1.0]
    assert [row[COLUMN] and row[COLUMN]["error_class"] for row in rows] == [None, "ValueError", "ArrowInvalid", None]


def reversed_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(price=1.0).iloc[::-1]


@pytest.mark.parametrize(
    ("takes", "function", "problem"),
    [
        ("pandas", lambda frame: frame, "has returned no column price; its columns are key, value"),
        ("pandas", lambda frame: frame["value"], "has returned Series"),
        ("pandas", lambda frame: frame.assign(price=1.0).head(1), "has returned 1 rows for 2 records"),
        ("pandas", reversed_rows, "another index"),
        ("arrow", lambda table: table.to_pandas(), "has returned DataFrame"),
        ("arrow", lambda table: pa.table({"price": [1.0]}), "has returned 1 rows for 2 records"),
        ("arrow", lambda table: pa.table({"price": [[1.0]] * 2}), "has returned column price as list"),
        ("record", lambda record: 1.0, "has returned float"),
        ("record", lambda record: {"pirce": 1.0}, "has returned the unknown column pirce"),
    ],
)
def test_P4_a_result_that_is_wrong_for_each_record_fails_the_query(
    takes: str, function: Callable[[Any], Any], problem: str
) -> None:
    with pytest.raises(FunctionFailed, match=problem) as caught:
        run(stage(function, takes), records([b"1", b"2"]))
    assert "Step 'price'" in str(caught.value)
    assert "orders-3, offset 100" in str(caught.value)


@pytest.mark.parametrize("takes", PRICES)
@pytest.mark.parametrize("error", [ConnectionError, MemoryError])
def test_P4_an_error_that_is_not_about_a_record_fails_the_query(takes: str, error: type[Exception]) -> None:
    def fails(_given: Any) -> Any:
        raise error("password=hunter2")

    with pytest.raises(FunctionFailed, match=f"has raised {error.__name__}") as caught:
        run(stage(fails, takes), records([b"1", b"2"]))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("takes", PRICES)
def test_P4_an_error_that_wraps_an_outage_fails_the_query(takes: str) -> None:
    """Clients of services have classes of their own, such as httpx.ConnectError."""

    def fails(_given: Any) -> Any:
        try:
            raise ConnectionRefusedError("refused")
        except ConnectionRefusedError as e:
            raise LookupError("no rate") from e

    with pytest.raises(FunctionFailed, match="has raised LookupError: no rate"):
        run(stage(fails, takes), records([b"1", b"2"]))


@pytest.mark.parametrize("takes", PRICES)
def test_P4_a_bad_record_that_is_found_while_another_error_is_handled_is_a_letter(takes: str) -> None:
    def fails(given: Any) -> Any:
        try:
            raise FileNotFoundError("no cache")
        except FileNotFoundError:
            raise ValueError("a bad record")  # noqa: B904

    rows = run(stage(fails, takes), records([b"1", b"2"]))
    assert [row[COLUMN]["error_class"] for row in rows] == ["ValueError"] * 2


def test_P4_timestamps_are_in_utc_and_a_replaced_column_is_null_in_a_letter() -> None:
    output = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])

    def later(frame: pd.DataFrame) -> pd.DataFrame:
        assert str(frame["timestamp"].dt.tz) == "UTC"
        if b"x" in set(frame["value"]):
            raise ValueError
        return pd.DataFrame({"timestamp": frame["timestamp"].dt.tz_localize(None) + pd.Timedelta("1s")})

    rows = run(stage(later, "pandas", output), records([b"a", b"x"]))
    assert rows[0]["timestamp"] == pd.Timestamp("1970-01-01T00:00:01", tz="UTC")
    assert rows[1]["timestamp"] is None
    assert rows[1][COLUMN]["timestamp"] == pd.Timestamp("1970-01-01T00:00:01", tz="UTC")


def test_P4_a_categorical_column_is_converted() -> None:
    output = pa.schema([("kind", pa.string())])
    rows = run(
        stage(lambda frame: pd.DataFrame({"kind": pd.Categorical(["a"] * len(frame))}), "pandas", output),
        records([b"1", b"2"]),
    )
    assert [row["kind"] for row in rows] == ["a", "a"]


EXTREME = {
    **extreme_columns(),
    "text": pa.array([b"\xff", *[b"ok"] * (len(EXTREME_TIMES_US) - 1)], pa.binary()).view(pa.string()),
}
TWICE: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda frame: frame.assign(m=frame["n"] * 2),
    "arrow": lambda table: pa.table({"m": pc.multiply(table["n"], 2)}),
    "record": lambda record: {"m": record["n"] * 2},
}


def safely_twice(takes: str, values: pa.Array, function: Callable[[Any], Any]) -> list[dict[str, Any]]:
    batch = pa.record_batch({"n": pa.array(range(len(values)), pa.int64()), "it": values})
    output = pa.schema([("m", pa.int64())])
    schema = pa.schema([*batch.schema, *output, pa.field(COLUMN, LETTER)])
    safely = SafeStage(FUNCTIONS[takes](function, "twice", output, ()), "twice", batch.schema.names, (), schema)
    table = pa.Table.from_batches(list(safely([batch])), schema=schema)
    return table.select(["n", "m", COLUMN]).to_pylist()


@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("takes", TWICE)
def test_P4_a_record_with_a_value_that_python_cannot_have_is_the_only_one_that_fails(takes: str, name: str) -> None:
    rows = safely_twice(takes, EXTREME[name], TWICE[takes])
    for row in rows:
        assert (row["m"] is None) != (row[COLUMN] is None)
        assert row["m"] in (None, 2 * row["n"])
    failed = [row[COLUMN] for row in rows if row[COLUMN] is not None]
    assert takes != "arrow" or not failed
    assert rows[-1]["m"] is not None, "null is a value of Python"
    for letter in failed:
        assert letter["error_class"] == "ValueError"
        assert "record" in dict(letter["details"])


@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("takes", TWICE)
def test_P4_the_letter_of_a_failed_record_can_contain_any_value(takes: str, name: str) -> None:
    def fail(_: Any) -> Any:
        raise KeyError("no")

    rows = safely_twice(takes, EXTREME[name], fail)
    assert all("record" in dict(row[COLUMN]["details"]) for row in rows)
