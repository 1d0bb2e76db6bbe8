"""P1: functions of the user that return arguments."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroups.errors import FunctionFailed
from streamgroups.processors.arguments import arguments_of, functions_of
from streamgroups.processors.processor import FunctionCall, Sql, UserFunction


class Functions:
    """Functions by their references."""

    def __init__(self, **found: Any) -> None:
        self._found = found

    def function(self, reference: Any) -> Any:
        return self._found[reference]

    def registry(self, connection: str) -> Any:
        raise AssertionError(connection)

    def content(self, path: str) -> bytes:
        raise AssertionError(path)


def _windows(loading: Functions) -> Any:
    return arguments_of("windows", {"aggregate": {"n": "count(*)", "p": {"function": "median"}}}, loading)


def test_P1_an_aggregate_is_named_or_returned() -> None:
    assert _windows(Functions(median="median")) == {"aggregate": {"n": "count(*)", "p": "median"}}
    assert _windows(Functions(median=lambda: "median")) == {"aggregate": {"n": "count(*)", "p": "median"}}


def test_P1_an_error_of_the_function_of_an_aggregate_has_its_name() -> None:
    def median() -> Any:
        raise ValueError("no file \udcff")

    with pytest.raises(FunctionFailed, match="Function 'median' raised ValueError: no file") as raised:
        _windows(Functions(median=median))
    assert str(raised.value).encode()


def test_P2_functions_of_all_steps_are_found_once() -> None:
    safely = FunctionCall("safely", {"function": "a:f", "fail_on": ["a:Down", "b:Down"]})
    windows = FunctionCall("windows", {"window": {"tumbling": "1h"}, "aggregate": {"n": {"function": "a.b:median"}}})
    stateful = FunctionCall("stateful", {"function": "a:g", "migrate": {"1": "a:h"}})
    steps = (Sql("SELECT 1"), safely, windows, stateful, UserFunction("a:f"), UserFunction(functions_of))
    assert functions_of(steps) == ("a:f", "a:Down", "b:Down", "a.b:median", "a:g", "a:h")


def test_a_step_with_an_invalid_argument_names_no_function() -> None:
    invalid = FunctionCall("windows", {"window": {"tumbling": "soon"}, "aggregate": {"n": {"function": "a:f"}}})
    assert functions_of([invalid]) == ()
