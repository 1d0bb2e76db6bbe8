"""Imports the functions that a processor names, and calls those of its steps.

Called by ``building``. An error names the function, the interpreter and the machine, because the mistake is often another
environment. Source: SEMANTICS P1.
"""

from __future__ import annotations

import platform
import sys
from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame

from streamgroups.decoding.registry import SchemaRegistry
from streamgroups.errors import FunctionFailed, InvalidOption
from streamgroups.processors.processor import Reference


class Loader:
    """Loads the functions, registries and files of the steps of a processor."""

    def function(self, reference: Reference) -> Any:
        """Returns the function or class that ``module:name`` names.

        Raises:
            InvalidOption: if it cannot be imported here.

        >>> Loader().function("builtins:OSError")
        <class 'OSError'>
        """
        if not isinstance(reference, str):
            return reference
        module, _, name = reference.partition(":")
        try:
            found: Any = import_module(module)
        except Exception as e:
            why = f"{type(e).__name__}: {e}"
            raise InvalidOption(
                f"Function '{reference}' cannot be imported by {_interpreter()}: {why}.",
                remedy="Install its package there, or add its directory to PYTHONPATH.",
            ) from e
        for part in name.split("."):
            if not hasattr(found, part):
                raise InvalidOption(
                    f"Module '{module}' has no '{name}', in the file {getattr(found, '__file__', module)} of {_interpreter()}.",
                    remedy="Correct the name, or install the version that has it.",
                )
            found = getattr(found, part)
        return found

    def registry(self, connection: str) -> Any:
        """Returns the schema registry of a connection."""
        return SchemaRegistry(connection=connection)

    def content(self, path: str) -> bytes:
        """Returns the content of a file.

        Raises:
            InvalidOption: if it cannot be read.
        """
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as e:
            raise InvalidOption(
                f"File '{path}' cannot be read by {_interpreter()}: {e.strerror}.", remedy="Use an absolute path."
            ) from e


def transformed(df: DataFrame, reference: Reference, loader: Loader) -> DataFrame:
    """Returns the rows of a step that is a function of the user.

    Args:
        df: the rows of the step before.
        reference: the function.
        loader: imports it.

    Raises:
        InvalidOption: if it cannot be imported, or returns no DataFrame.
        FunctionFailed: if it raises an error.
    """
    function = loader.function(reference)
    if not callable(function):
        raise InvalidOption(f"'{reference}' is no function.", remedy="Name a function: DataFrame -> DataFrame.")
    try:
        found = function(df)
    except Exception as e:
        raise FunctionFailed(
            f"Function '{reference}' raised {type(e).__name__}: {e}.",
            remedy=f"Columns of its DataFrame: {_columns(df)}.",
        ) from e
    if not isinstance(found, DataFrame):
        raise InvalidOption(
            f"Function '{reference}' returned {type(found).__name__}, which is no DataFrame.",
            remedy="Return a DataFrame of Spark, derived from the argument.",
        )
    if found.isStreaming != df.isStreaming:
        raise InvalidOption(
            f"Function '{reference}' returned a DataFrame that is not derived from its argument.",
            remedy="Return a DataFrame that reads the stream of the argument.",
        )
    return found


def _columns(df: DataFrame) -> str:
    return ", ".join(df.columns)


def _interpreter() -> str:
    return f"{sys.executable} on {platform.node() or 'this machine'}"
