"""Removes secrets from a text that others have written, such as the error of a client or of a user's function. Pure functions.

Called for errors, logs, progress and dead letters. A secret is known, or it is recognised: a JSON Web Token, a login in a URL, or
the value after a name such as ``password=``. A value can be quoted and escaped: by libpq, by JSON, also as a text in JSON, by
Python's ``repr``, or by Java. When its end is in doubt, the mask is longer than the value.

The cost grows with the length of a text only: a producer chooses texts. Sources: libpq's "Connection Strings"; RFC 7519 (tokens);
RFC 9110 ("Authorization"); :mod:`streamgroups.connections.secret_names`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import quote

from streamgroups.connections.secret_names import is_secret_name
from streamgroups.url_logins import first_quotes, without_logins

#: The redaction of a shorter one would remove half of every text.
SHORTEST_SECRET = 4
_MASK = "***"
#: Words that dots join, where three adjacent ones can be a JSON Web Token. An expression of its three parts would read
#: a text again for each of its possible beginnings, and a producer chooses texts.
_DOTTED = re.compile(r"[\w.-]+")
_TOKEN_HEADER = re.compile(r"(?:^|(?<=-))eyJ[\w-]{8,}", re.IGNORECASE)
#: A name with the sign before its value. The sign of ``Map.toString`` in Scala is an arrow.
_ASSIGNED = re.compile(
    r"""(?<![\w.-])(?P<name>[\w.-]+)(?P<quote>\\*["']|%22|%27)?\s*(?P<sign>->|=>|=+|:=?(?!//)|%3D|%3A)\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST_NAME = 100
_SIGNATURE = re.compile(r"(?:^|-)(?:sig|signature)$", re.IGNORECASE)
_AUTHORIZATION = re.compile(r"authorization$", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?:basic|bearer|token|apikey|negotiate)\s+|(?:digest|aws4\S+)\s[^\n]*", re.IGNORECASE)
#: The beginning of a quoted value. In a text inside of a text, backslashes precede its quotes. A class can be around a value, as in
#: ``SecretStr('x')``.
_OPENING = re.compile(r"(?P<class>[\w.]+\((?:\w+=)?)?[bru]{0,2}(?P<escapes>\\*)(?P<quote>[\"'])", re.IGNORECASE)
#: What is no value after a name with quotes and a colon: a constant, a sentence about an option, or a mapping.
_NO_VALUE = re.compile(
    r"""(?:null|true|false|None|True|False)(?=\\*["']|[\s,;}\])]|$)|[A-Z]?[a-z]*[ ][A-Za-z]+(?=[\s.,;!?)"']|$)
    |\{\s*(?:\\*["']|\})""",
    re.VERBOSE,
)
#: What ends a value after such a name. Otherwise, these signs are characters of the value.
_END_OF_ITEM = re.compile(r""",(?=[\s"'\\{\[]|$)|[}\]](?=[\s,;.:)}\]"'\\]|$)""")
#: What can end a value without quotes. libpq reads the character after a backslash as a part of it.
_STOP = re.compile(r"""(?P<quote>\\{0,7}["'])(?=[\s,:;)\]}]|$)|\\.|\s""", re.DOTALL)
#: A quote inside of a quoted value of a shell: ``'x'"'"'y'`` and ``'x'\''y'``.
_CONCATENATED = re.compile(r"""'(?:\\*"\\*'\\*"|\\+')\\*'""")
_AFTER_CLOSING = re.compile(r"[\s,:;.)\]}>]|$")
_AFTER_VALUE = ",;.)]}>"
_PLACEHOLDER = re.compile(r"""["'\\]*(?:\.{3}|…|\*{3})["'\\]*""")


def redacted(text: str, secrets: Iterable[str], names: Collection[str] = ()) -> str:
    """Replaces each secret, JSON Web Tokens, values after names such as ``password=``, and the logins in URLs with ``***``.

    Args:
        text: any text.
        secrets: known secrets. Those of less than four characters have no effect.
        names: words that stay, although a secret is a part of them: the names of options. ``kafka.`` can precede them.

    >>> redacted('hunter2 and password="x y"; http://ann:pw@idp', ["hunter2"])
    '*** and password=***; http://***@idp'
    >>> redacted("Option 'kafka.group.id' contains kafka", ["kafka"], {"group.id"})
    "Option 'kafka.group.id' contains ***"
    """
    text = _without_secrets(text, secrets, names)
    return _without_values(without_logins(_DOTTED.sub(_without_tokens, text)))


def _without_secrets(text: str, secrets: Iterable[str], names: Collection[str]) -> str:
    """Replaces the known secrets. They can overlap, and one can contain another."""
    found = sorted(place for it in _forms(secrets) for place in _places(text, it))
    if not found:
        return text
    kept = [it.span() for it in _DOTTED.finditer(text) if _is_name(it[0], names)] if names else []
    pieces, at, next_kept = [], 0, 0
    for begin, end in found:
        while next_kept < len(kept) and kept[next_kept][1] <= begin:
            next_kept += 1
        word = kept[next_kept] if next_kept < len(kept) else (end, end)
        # The whole word is replaced: a value can be the name of an option.
        if word[0] <= begin and end <= word[1] and (begin, end) != word:
            continue
        if begin >= at:
            pieces += [text[at:begin], _MASK]
        at = max(at, end)
    return "".join((*pieces, text[at:]))


def _forms(secrets: Iterable[str]) -> set[str]:
    """The secrets, also as they are in JSON, in a ``repr`` and in a URL."""
    given = [it for it in secrets if len(it) >= SHORTEST_SECRET]
    return {
        form
        for it in given
        for form in (it, json.dumps(it)[1:-1], repr(it)[1:-1], quote(it, safe="", errors="replace"))
    }


def _places(text: str, secret: str) -> Iterable[tuple[int, int]]:
    begin = text.find(secret)
    while begin >= 0:
        yield begin, begin + len(secret)
        begin = text.find(secret, begin + 1)


def _is_name(word: str, names: Collection[str]) -> bool:
    return word in names or word.strip(".-").removeprefix("kafka.") in names


def _without_tokens(match: re.Match[str]) -> str:
    """Replaces JSON Web Tokens: three words, where the first one ends with a header in base64, and the last can be empty."""
    words, found, at = match[0].split("."), [], 0
    while at < len(words):
        header = _TOKEN_HEADER.search(words[at]) if at + 2 < len(words) and words[at + 1] else None
        found.append(words[at] if header is None else words[at][: header.start()] + _MASK)
        at += 1 if header is None else 3
    return ".".join(found)


def _without_values(text: str) -> str:
    """Replaces the values after names of secrets."""
    pieces, at, position, first = [], 0, 0, first_quotes(text)
    while (found := _ASSIGNED.search(text, position)) is not None:
        position = found.end()
        if not _is_of_secret(found):
            continue
        end = _end_of_value(text, found, first)
        if end > position and not _PLACEHOLDER.fullmatch(text, position, end):
            pieces += [text[at:position], _MASK]
            at = end
        position = end
    return "".join((*pieces, text[at:]))


def _is_of_secret(found: re.Match[str]) -> bool:
    name = found["name"][-_LONGEST_NAME:]
    in_prose = found["sign"] == ":" and not found["quote"]
    if in_prose and (name.lower() == "token" or "jaas" in name.lower()):
        return False
    is_signature = not in_prose and _SIGNATURE.search(name) is not None
    return is_secret_name(name) or is_signature or _AUTHORIZATION.search(name) is not None


def _end_of_value(text: str, found: re.Match[str], first: Mapping[str, int]) -> int:
    """The place where the value ends; the place where it begins, if the value is missing.

    Args:
        text: the text.
        found: the name and the sign.
        first: the result of :func:`first_quotes`.
    """
    begin = found.end()
    opening = _OPENING.match(text, begin)
    if opening is None:
        return _end_of_unquoted(text, found, first)
    end = _end_of_quoted(text, found.start(), opening)
    if opening["class"] is None:
        return end
    return max(end + text.startswith(")", end), _end_of_unquoted(text, found, first))


def _end_of_unquoted(text: str, found: re.Match[str], first: Mapping[str, int]) -> int:
    """The place after a value without quotes around it; the place where it begins, if it is missing."""
    begin = found.end()
    if _AUTHORIZATION.search(found["name"][-_LONGEST_NAME:]):
        credentials = _CREDENTIALS.match(text, begin)
        return begin if credentials is None else _end_of_word(text, found.start(), credentials.end(), first)
    is_item = found["quote"] and found["sign"] == ":"
    if is_item and _NO_VALUE.match(text, begin):
        return begin
    end = _end_of_word(text, found.start(), begin, first)
    end_of_item = _END_OF_ITEM.search(text, begin, end) if is_item else None
    return end if end_of_item is None else end_of_item.start()


def _end_of_quoted(text: str, name: int, opening: re.Match[str]) -> int:
    """The place after the closing quote: the first one with at most as many backslashes as the opening one.

    A ``repr`` doubles the backslashes of libpq. So the number of backslashes before a quote inside of the value can be even.
    Two quotes are one character of the value. But if no later quote closes it, and the text around it is quoted too, the last two
    are the ends of both.
    """
    mark, most = opening["quote"], len(opening["escapes"])
    begin, last_double = opening.end(), -1
    while (at := text.find(mark, begin)) >= 0:
        before = text[begin:at]
        escapes = len(before) - len(before.rstrip("\\"))
        if (concatenated := _CONCATENATED.match(text, at)) is not None:
            begin = concatenated.end()
            continue
        is_doubled = most == escapes == 0 and text.startswith(mark, at + 1)
        if escapes <= most and not is_doubled:
            return at + 1
        if is_doubled and not text[at + 2 : at + 3].isalnum():
            last_double = at
        begin = at + (2 if is_doubled else 1)
    is_in_quotes = text.count(mark, 0, name) % 2 == 1
    if is_in_quotes and last_double >= 0:
        return last_double + 1
    # The text is truncated, or the mark is the closing quote of another text that ends with the sign.
    is_closing = is_in_quotes and _AFTER_CLOSING.match(text, opening.end())
    return opening.start() if is_closing else len(text)


def _end_of_word(text: str, name: int, begin: int, first: Mapping[str, int]) -> int:
    """The place after a value without quotes. A quote ends it if another one precedes the name, as in ``"password=x"``."""
    end = len(text)
    for stop in _STOP.finditer(text, begin):
        if stop[0].isspace() or first.get(stop["quote"], end) < name:
            end = stop.start()
            break
    length = len(text[begin:end].rstrip(_AFTER_VALUE))
    return begin + length if length else end
