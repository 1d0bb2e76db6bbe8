"""The pages of the reference about the public API and the errors, from the code.

``reference`` calls it. The names of ``streamgroups.__all__`` are one page. A module among them, such as ``sg.errors``, has a
page of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import Any

from docstrings import body, summary
from docutils.nodes import make_id
from markup import heading, literal, table

import streamgroups as sg

_WIDTH = 100
_INTRODUCTION = """\
Examples import the module ``streamgroups`` as ``sg``. W4, X3 and the like are numbers of `semantics.rst <../semantics.rst>`_.
"""
_ERRORS = """\
Every error of the library is a ``StreamGroupsError``, in the module ``sg.errors``. Its text describes what happened, to which
topic, partition and group, and the remedy. The same call may succeed later if an error is retriable.
"""


def pages() -> dict[str, str]:
    """The text of each page, by its file name."""
    names = {"api.rst": ("sg", _public(sg))}
    for name, found in _public(sg).items():
        if inspect.ismodule(found) and name != "errors":
            names[f"api-{name}.rst"] = (f"sg.{name}", _public(found))
    places = {name: ("errors.rst", f"#{make_id(name)}") for name in _errors()}
    for page, (module, public) in names.items():
        places |= {
            name: (page, f"#{make_id(f'{module}.{name}')}") for name, found in public.items() if _has_section(found)
        }
    texts = {page: _page(module, public, _links(places, page)) for page, (module, public) in names.items()}
    return texts | {"errors.rst": _errors_page(_links(places, "errors.rst"))}


def _links(places: Mapping[str, tuple[str, str]], page: str) -> dict[str, str]:
    return {name: anchor if at == page else at + anchor for name, (at, anchor) in places.items()}


def _public(module: Any) -> dict[str, Any]:
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    return {name: getattr(module, name) for name in sorted(names, key=str.lower) if not name.startswith("__")}


def _has_section(found: Any) -> bool:
    """Whether a name has a section: a member of an enumeration is in the section of its class."""
    return not inspect.ismodule(found) and not isinstance(found, Enum)


def _page(module: str, names: Mapping[str, Any], links: Mapping[str, str]) -> str:
    found = {name: it for name, it in names.items() if _has_section(it)}
    text = heading("API" if module == "sg" else module, "=") + _INTRODUCTION + "\n"
    overview = [
        (f"`{module}.{name} <{links[name]}>`__", "An alias of a type." if _is_alias(it) else summary(it, links))
        for name, it in found.items()
    ]
    overview += [
        (f"`sg.{name} <{'errors' if name == 'errors' else f'api-{name}'}.rst>`__", summary(it, links))
        for name, it in names.items()
        if inspect.ismodule(it)
    ]
    text += table(["Name", "Meaning"], [35, 65], overview)
    return text + "".join(_section(module, name, it, links) for name, it in found.items())


def _section(module: str, name: str, found: Any, links: Mapping[str, str]) -> str:
    text = heading(f"{module}.{name}", "-")
    if inspect.isclass(found) and issubclass(found, Enum):
        members = ", ".join(f"``{module}.{member}``" for member in found.__members__)
        return text + body(found, links) + f"Members: {members}.\n\n"
    if _is_alias(found):
        return text + literal(f"{name} = {inspect.formatannotation(found)}")
    if not _is_protocol(found):
        text += literal(signature(f"{module}.{name}", found))
    text += body(found, links)
    for member, it in _members(found) if inspect.isclass(found) else ():
        text += heading(f"{name}.{member}", "~")
        if callable(it):
            text += literal(signature(f"{name}.{member}", it))
        text += body(it, links)
    return text


def _is_alias(found: Any) -> bool:
    return not (inspect.isclass(found) or inspect.isroutine(found))


def _is_protocol(found: Any) -> bool:
    return bool(getattr(found, "_is_protocol", False))


def _members(found: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, in the order of its source."""
    for name, it in vars(found).items():
        it = getattr(it, "__func__", it)
        is_member = inspect.isfunction(it) or isinstance(it, property | cached_property)
        if is_member and not name.startswith("_") and inspect.getdoc(it):
            yield name, it


def signature(name: str, function: Any) -> str:
    """A call with the types of its arguments, in several lines if it is long.

    >>> def f(df: DataFrame, *, name: str = "a") -> DataFrame: ...
    >>> signature("sg.f", f)
    "sg.f(df: DataFrame, *, name: str = 'a') -> DataFrame"
    """
    found = inspect.signature(function)
    returned = found.return_annotation
    ending = ")" if returned in (found.empty, None, "None") else f") -> {_annotation(returned)}"
    arguments, star = [], False
    for it in found.parameters.values():
        if it.name in ("self", "cls"):
            continue
        if it.kind is it.KEYWORD_ONLY and not star:
            arguments.append("*")
        star = star or it.kind in (it.KEYWORD_ONLY, it.VAR_POSITIONAL)
        prefix = {it.VAR_POSITIONAL: "*", it.VAR_KEYWORD: "**"}.get(it.kind, "")
        text = prefix + it.name + ("" if it.annotation is it.empty else f": {_annotation(it.annotation)}")
        equals = "=" if it.annotation is it.empty else " = "
        arguments.append(text + ("" if it.default is it.empty else equals + _default(it.default)))
    line = f"{name}({', '.join(arguments)}{ending}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + ending


def _annotation(found: Any) -> str:
    return found if isinstance(found, str) else inspect.formatannotation(found)


def _default(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    # A function or a factory has an address, which differs in each process.
    return repr(value) if isinstance(value, str | int | float | bytes | tuple | None) else "..."


def _errors() -> dict[str, type[sg.errors.StreamGroupsError]]:
    found = vars(sg.errors)
    return {
        name: it for name, it in found.items() if inspect.isclass(it) and issubclass(it, sg.errors.StreamGroupsError)
    }


def _errors_page(links: Mapping[str, str]) -> str:
    text = heading("Errors", "=") + _ERRORS + "\n" + body(sg.errors, links)
    for name, it in _errors().items():
        text += heading(name, "-") + body(it, links)
        bases = ", ".join(f"``{base.__name__}``" for base in it.__bases__)
        text += f"Code: ``{it.code}``. {'Retriable. ' if it.retriable else ''}Base: {bases}.\n\n"
    return text
