"""Makes pickled classes and functions check the library in Spark's Python processes first.

Used by every class and function of this library that Spark pickles: data sources, readers, writers, functions of a
DataFrame, the processor of windows. Spark pickles an importable object as its name. In a Python without this library,
unpickling then fails inside Spark, and the traceback names neither the interpreter nor the setting. Each pickle
therefore starts with a function that is pickled by value and uses only the standard library. The function compares the
versions and imports the object. If that fails, its error names the interpreter, the host and ``PYSPARK_PYTHON``.

Source: ``pyspark.cloudpickle``. It pickles a nested function by value, and the attributes of a function before its
globals. It pickles the bases of a class in their original form (PEP 560, ``__mro_entries__``).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from streamgroups._version import __version__

_F = TypeVar("_F", bound=Callable[..., Any])
_OUR_MODULE = __name__


class Shipped:
    """A base of classes whose instances Spark pickles. A dynamic class needs :func:`shipped_class` instead."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Reduces as ``object`` does, but a function with the check looks up the class."""
        reduced: Any = super().__reduce_ex__(protocol)
        _new, (cls, *arguments), *state = reduced
        return object.__new__, (_Name(cls.__module__, cls.__qualname__), *arguments), *state


class _Name:
    """A name whose unpickled form is the named object."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return _load, (__version__, _OUR_MODULE, "named", self._module, self._name)


class _Base:
    """A base of a dynamic class: the named class, in every process.

    It is unpickled as a ``_Base``, so that the next process checks too.
    """

    __slots__ = ("_cls",)

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (self._cls,)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return _load, (__version__, _OUR_MODULE, "base_named", self._cls.__module__, self._cls.__qualname__)


class _Check:
    """An object whose unpickling runs the check."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return _load, (__version__, _OUR_MODULE, "named", _OUR_MODULE, "CHECK")


CHECK = _Check()


def shipped_class(base: type, attributes: dict[str, Any]) -> Any:
    """Creates a class with its own attributes that Spark pickles by value.

    Args:
        base: a class of this library, at the top of its module.
        attributes: the attributes of the new class, which has the name of the base.

    Example::

        spark.dataSource.register(shipped_class(TimeDataSource, {"session": SESSION}))
    """
    from types import new_class

    return new_class(
        base.__name__, (_Base(base),), {}, lambda body: body.update({"__module__": _OUR_MODULE}, **attributes)
    )


def shipped_function(function: _F) -> _F:
    """Adds the check to a function that Spark pickles by value.

    Args:
        function: a nested function, which is therefore pickled by value.
    """
    # The attributes of a function are unpickled before its globals.
    vars(function)["_streamgroups"] = CHECK
    return function


def named(module: str, name: str) -> Any:
    """Returns the object with this name in a module."""
    return getattr(import_module(module), name)


def base_named(module: str, name: str) -> Any:
    """Returns the base of a dynamic class. See :func:`shipped_class`."""
    return _Base(named(module, name))


def _self_contained() -> Callable[..., Any]:
    def load(version: str, module: str, function: str, *arguments: str) -> Any:
        # Calls a function of the library. This code must not refer to the library itself: such a reference would be
        # looked up at unpickling.
        from importlib import import_module

        try:
            found = getattr(import_module("streamgroups"), "__version__", "without a version")
            if found == version:
                return getattr(import_module(module), function)(*arguments)
            problem = f"has streamgroups {found}, but the driver has streamgroups {version}"
        except ImportError as e:
            missing = (e.name or "").partition(".")[0] or "a module of streamgroups"
            problem = f"cannot import {missing}, which streamgroups {version} of the driver needs ({e})"
        import os
        import platform
        import socket
        import sys

        requested = os.environ.get("PYSPARK_PYTHON")
        raise ImportError(
            f"Spark's Python process {problem}. The interpreter is {sys.executable}, Python "
            f"{platform.python_version()}, on host {socket.gethostname()}; PYSPARK_PYTHON is "
            f"{requested or 'not set'} there. Before the Spark session starts, set PYSPARK_PYTHON (or "
            "spark.pyspark.python) to a Python that has the library at the same path on every host. Or "
            f"install the same wheel there: {sys.executable} -m pip install WHEEL"
        ) from None

    return load


_load = _self_contained()
