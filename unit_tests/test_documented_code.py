"""The Python code of the documents parses, and calls functions of this library with arguments that they have."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Any

import pytest

import streamgroups as sg
from unit_tests.documents import PAGES, Block, blocks

BLOCKS = [block for page in PAGES for block in blocks(page)]


def test_the_documents_have_code() -> None:
    assert len(BLOCKS) > 30


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_call_has_valid_arguments(block: Block) -> None:
    tree = ast.parse(block.code)
    names = {"sg": sg, **_imported(tree)}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = _resolved(call.func, names)
        if function is not None:
            _check(call, function, block)


def _imported(tree: ast.Module) -> dict[str, Any]:
    """The names that a block imports from this library."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("streamgroups"):
            module = importlib.import_module(str(node.module))
            found |= {it.asname or it.name: getattr(module, it.name) for it in node.names}
    return found


def _resolved(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        found = names.get(node.id)
        return None if inspect.ismodule(found) else found
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        holder = names.get(node.value.id)
        return getattr(holder, node.attr) if inspect.ismodule(holder) else None
    return None


def _check(call: ast.Call, function: Any, block: Block) -> None:
    if any(isinstance(it, ast.Starred) for it in call.args) or any(it.arg is None for it in call.keywords):
        return
    ellipsis = [it for it in call.args if isinstance(it, ast.Constant) and it.value is ...]
    assert not ellipsis, f"{block}: {ast.unparse(call)} is not complete"
    try:
        inspect.signature(function).bind(*call.args, **{str(it.arg): it.value for it in call.keywords})
    except TypeError as e:
        pytest.fail(f"{block}: {ast.unparse(call)}: {e}")
