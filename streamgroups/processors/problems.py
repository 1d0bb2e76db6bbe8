"""What is wrong in a processor file: all problems of a file, each with its line, field and remedy.

Collected by ``schema_checks``, ``reading`` and ``rules``. ``streamgroups processors validate`` prints them, and
:func:`check` raises them as one error. Source: SEMANTICS P1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from streamgroups.connections import secret_names
from streamgroups.errors import InvalidProcessor
from streamgroups.processors.values import NO_LINE

_MAX_SHOWN = 60
#: Names of fields whose values can be secrets. Their values are never part of an error.
_SECRET = re.compile(r"passwd|token|credential|private|sasl\.username|conninfo", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem of a processor.

    Args:
        line: the line in the file, from 1; 0 if it is unknown.
        field: the field, such as ``steps[1].windows.on``. Empty for the whole file.
        what: one sentence.
        remedy: one sentence: the next action of the user.
        file: the name of the file; empty without one.
    """

    line: int
    field: str
    what: str
    remedy: str
    file: str = ""

    def __str__(self) -> str:
        place = self.file + (f":{self.line}" if self.line != NO_LINE else "")
        return ": ".join(it for it in (place, self.field, f"{self.what} {self.remedy}".strip()) if it)


def check(problems: Iterable[Problem]) -> None:
    """Raises all problems as one error.

    Raises:
        InvalidProcessor: if there is a problem. Each problem is one line of its text.

    >>> check([Problem(3, "source", "Key 'subscrib' is unknown.", "Did you mean 'subscribe'?", "late.yaml")])
    Traceback (most recent call last):
    streamgroups.errors.InvalidProcessor: late.yaml:3: source: Key 'subscrib' is unknown. Did you mean 'subscribe'?
    """
    found = sorted(set(problems))
    if found:
        raise InvalidProcessor("\n".join(map(str, found)))


def is_secret(field: str) -> bool:
    """Returns whether the value of a field can be a secret.

    >>> is_secret("source.kafka.ssl.keystore.key"), is_secret("source.subscribe")
    (True, False)
    """
    return _SECRET.search(field) is not None or secret_names.is_secret(field.rpartition("kafka.")[2], "")


def shown(text: str, field: str = "") -> str:
    """Returns a value for an error: shortened, and never a secret.

    >>> shown("x" * 100)[-5:], shown("hunter2", "source.kafka.sasl.password")
    ('xx...', '***')
    """
    if is_secret(field):
        return "***"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
