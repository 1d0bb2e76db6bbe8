"""What Spark ships to its Python processes says first whether they can run it.

Used by every class and function of ours that Spark pickles: data sources, readers, writers, functions of a DataFrame, the processor of
windows. Spark pickles what can be imported as a name, so in a Python without this library unpickling fails inside Spark, with a traceback
that names neither the interpreter nor the setting. So each of them starts with a function that is pickled by value and needs
nothing but the standard library. It compares the versions and imports the rest; if it cannot, its error names the interpreter, the host
and ``PYSPARK_PYTHON``.

Source: ``pyspark.cloudpickle``, which pickles a function inside a function by value, the attributes of a function before its globals, and the
bases of a class as they were written (PEP 560, ``__mro_entries__``).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from streamgroups import __version__

_F = TypeVar("_F", bound=Callable[..., Any])
_OUR_MODULE = __name__


class Shipped:
    """A base of classes whose instances Spark pickles. A dynamic class needs :func:`shipped_class` instead."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As ``object`` does, with the class looked up by a function that checks first."""
        reduced: Any = super().__reduce_ex__(protocol)
        _new, (cls, *arguments), *state = reduced
        return object.__new__, (_Name(cls.__module__, cls.__qualname__), *arguments), *state


class _Name:
    """Unpickled it is what it names."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return _load, (__version__, _OUR_MODULE, "named", self._module, self._name)


class _Base:
    """A base of a dynamic class: the class it names, wherever it is unpickled.

    Unpickled it is a base again, so that the next process checks too.
    """

    __slots__ = ("_cls",)

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (self._cls,)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return _load, (__version__, _OUR_MODULE, "base_named", self._cls.__module__, self._cls.__qualname__)


class _Check:
    """Unpickled it is nothing of interest: the check is done then."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return _load, (__version__, _OUR_MODULE, "named", _OUR_MODULE, "CHECK")


CHECK = _Check()


def shipped_class(base: type, attributes: dict[str, Any]) -> Any:
    """A class for Spark to pickle by value, with attributes of its own.

    Args:
        base: a class of this library, at the top of its module.
        attributes: of the new class, which has the name of the base.

    Example::

        spark.dataSource.register(shipped_class(TimeDataSource, {"session": SESSION}))
    """
    from types import new_class

    return new_class(
        base.__name__, (_Base(base),), {}, lambda body: body.update({"__module__": _OUR_MODULE}, **attributes)
    )


def shipped_function(function: _F) -> _F:
    """The same function, for Spark to pickle by value.

    Args:
        function: one that is defined in a function, which is why it is pickled by value.
    """
    # Attributes of a function are unpickled before what its code refers to.
    vars(function)["_streamgroups"] = CHECK
    return function


def named(module: str, name: str) -> Any:
    """What stands under a name in a module."""
    return getattr(import_module(module), name)


def base_named(module: str, name: str) -> Any:
    """The base of a dynamic class; see :func:`shipped_class`."""
    return _Base(named(module, name))


def _self_contained() -> Callable[..., Any]:
    def load(version: str, module: str, function: str, *arguments: str) -> Any:
        # Calls a function of the library. Nothing of ours may be named in here; what is, is looked up when it is unpickled.
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

        asked = os.environ.get("PYSPARK_PYTHON")
        raise ImportError(
            f"Spark's Python process {problem}. The interpreter is {sys.executable}, Python "
            f"{platform.python_version()}, on host {socket.gethostname()}; PYSPARK_PYTHON is "
            f"{asked or 'not set'} there. Before the Spark session starts, set PYSPARK_PYTHON (or "
            "spark.pyspark.python) to a Python that has the library at the same path on every host. Or "
            f"install the library there: {sys.executable} -m pip install streamgroups=={version}"
        ) from None

    return load


_load = _self_contained()
