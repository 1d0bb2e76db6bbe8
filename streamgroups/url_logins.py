"""The login in a URL, also if its password contains characters that must be encoded, such as ``/`` and ``@``.

Used wherever a URL is shown, checked or stored. In a URL of RFC 3986, a slash ends the part with the login. Users nevertheless
copy passwords unchanged, and many secret keys of AWS contain a slash. A parser then takes a part of the password for a host or a
path, and shows it.

A colon before the first slash that is not the colon of a port begins a password, if an ``@`` follows. The password ends at the
last ``@``: a mask that is too long hides a part of the path, and one that is too short shows a part of the password. A password of
digits before a slash cannot be distinguished from a port. A bucket has no port.

White space, or the quote that encloses a URL, ends it after its host and port. Otherwise they are characters of a password, whose
``@`` follows in the same line. A password of digits before white space cannot be distinguished from a port, either. In a sentence,
white space after an ``@`` ends a URL in any case: encode it in a password that contains both.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

#: In URLs of Azure the name before the ``@`` is a container.
_OF_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
#: Schemes with a bucket instead of a host.
_OF_BUCKETS = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "oss", "cos", "cosn", "obs"})
#: The beginning of a URL, such as ``jdbc:postgresql://``, and of a URI with less than two slashes.
_WHOLE_URL = re.compile(r"\s*(?:[A-Za-z][\w+.-]*:)+//")
_WHOLE = re.compile(rf"{_WHOLE_URL.pattern}|\s*[A-Za-z][\w+.-]*:/?")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*$")
_LONGEST_SCHEME = 40
_SIGN = "://"
_END_OF_HOST = re.compile(r"[/?#]")
_SPACE = re.compile(r"\s")
_LINE = re.compile(r"[\r\n]")
#: What can follow a host in a sentence, or in a URL of JDBC.
_PUNCTUATION = ";,.:!)>}'\"…"
_PARAMETERS = re.compile(r"[;\\]")
#: A quote with its backslashes. Their number is limited, so that a text has few kinds of quotes.
_QUOTE = re.compile(r"""\\{0,7}["']""")
_HOST = r"(?:\[[\w:.%]+\]|[\w.%-]+)(?::\d{1,5})?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")


class _Login(NamedTuple):
    """The places where a login begins and ends, and whether it has a password."""

    begin: int
    end: int
    has_password: bool


def has_password(text: str) -> bool:
    """Returns whether a text is or contains a URL with a password.

    Args:
        text: a URL, or any text.

    >>> has_password("s3://key:wJalr/K7MDENG@bucket/state"), has_password("http://host:8080/a@b")
    (True, False)
    >>> has_password("abfss://container@account.dfs.core.windows.net/x"), has_password("postgresql://ann@db/flights")
    (False, False)
    """
    found = _login_of(text) if _WHOLE_URL.match(text) else None
    return bool(found and found.has_password) or any(it.has_password for it in _logins_in(text))


def has_login(url: str) -> bool:
    """Returns whether a URL contains a login, with or without a password. The container of Azure does not count.

    Args:
        url: one URL.

    >>> has_login("s3://ann@bucket/x"), has_login("abfss://container@account.dfs.core.windows.net/x")
    (True, False)
    """
    return _login_of(url) is not None


def without_login(url: str, *, keeps_user: bool = False) -> str:
    """Returns a URL without its login.

    Args:
        url: one URL, or a path.
        keeps_user: whether a login without a password stays.

    >>> without_login("s3a://AKIA:wJalr/K7MD@ENG@bucket/state")
    's3a://bucket/state'
    >>> without_login("abfss://container@account.dfs.core.windows.net/x"), without_login("s3://bucket/a:b@c")
    ('abfss://container@account.dfs.core.windows.net/x', 's3://bucket/a:b@c')
    """
    found = _login_of(url)
    if found is None or (keeps_user and not found.has_password):
        return url
    return url[: found.begin] + url[found.end + 1 :]


def without_logins(text: str) -> str:
    """Returns a text with ``***`` for each login in its URLs. A URL ends at white space or its closing quote, after its host.

    The cost grows with the length of the text only.

    Args:
        text: any text.

    >>> without_logins("GET https://ann:p@ss/w0rd@idp/token failed at http://proxy:8080/a@b")
    'GET https://***@idp/token failed at http://proxy:8080/a@b'
    >>> without_logins("http://host:8080 failed for ann@corp"), without_logins("http://ann:p w@host:8080")
    ('http://host:8080 failed for ann@corp', 'http://***@host:8080')
    """
    pieces, at = [], 0
    for login in _logins_in(text):
        pieces += [text[at : login.begin], "***"]
        at = login.end
    return "".join((*pieces, text[at:]))


def _login_of(url: str) -> _Login | None:
    whole = _WHOLE.match(url)
    if whole is None:
        return None
    scheme = whole[0].rstrip("/").strip().removesuffix(":").rpartition(":")[2]
    begin, space = whole.end(), _SPACE.search(url, whole.end())
    end = space.start() if space and _is_host(url, begin, space.start(), scheme) else len(url)
    return _login_at(url, begin, end, url.rfind("@", begin, end), scheme)


def first_quotes(text: str) -> dict[str, int]:
    """Returns the place of the first quote of each kind. Backslashes before a quote belong to its kind, as in a text inside of a text.

    A quote closes a value only if a quote of its kind precedes the value. Otherwise, it is a character of the value.

    Args:
        text: any text.

    >>> first_quotes(r'{"a": "{\\"b\\": 1}"}')
    {'"': 1, '\\\\"': 8}
    """
    found: dict[str, int] = {}
    for it in _QUOTE.finditer(text):
        found.setdefault(it[0], it.start())
    return found


def _logins_in(text: str) -> list[_Login]:
    if _SIGN not in text or "@" not in text:
        return []
    ats, first, closing = [it.start() for it in re.finditer("@", text)], first_quotes(text), _closing_quotes(text)
    found, word, line, sign = [], 0, 0, text.find(_SIGN)
    while sign >= 0:
        begin = sign + len(_SIGN)
        word = word if begin < word else _end_of(_SPACE, text, begin)
        line = line if begin < line else _end_of(_LINE, text, begin)
        quotes = [places for kind, places in closing.items() if first[kind] < sign]
        before = _SCHEME.search(text[max(0, sign - _LONGEST_SCHEME) : sign])
        scheme, at = before[0] if before else "", _next(ats, begin, line)
        end = min([word, *(_next(it, begin, word) for it in quotes)])
        if end <= at < line and not _is_host(text, begin, end, scheme):
            # The password contains white space or a quote.
            space = _end_of(_SPACE, text, at)
            end = min([space, *(_next(it, at, space) for it in quotes)])
        login = _login_at(text, begin, end, _last(ats, begin, end), scheme)
        found += [login] if login is not None else []
        sign = text.find(_SIGN, begin if login is None else login.end)
    return found


def _closing_quotes(text: str) -> dict[str, list[int]]:
    """The places of quotes after which no word begins, by their kind."""
    found: dict[str, list[int]] = {}
    for it in _QUOTE.finditer(text):
        if not text[it.end() : it.end() + 1].isalnum():
            found.setdefault(it[0], []).append(it.start())
    return found


def _next(places: list[int], begin: int, otherwise: int) -> int:
    at = bisect_left(places, begin)
    return places[at] if at < len(places) else otherwise


def _last(places: list[int], begin: int, end: int) -> int:
    """The last place from ``begin`` and before ``end``; -1 without one."""
    at = bisect_left(places, end)
    return places[at - 1] if at and places[at - 1] >= begin else -1


def _end_of(separator: re.Pattern[str], text: str, begin: int) -> int:
    found = separator.search(text, begin)
    return found.start() if found else len(text)


def _is_host(text: str, begin: int, space: int, scheme: str) -> bool:
    """Returns whether hosts and ports are between the two slashes and white space, and not a user and a part of a password."""
    slash = _END_OF_HOST.search(text, begin, space)
    hosts = _PARAMETERS.split(text[begin : slash.start() if slash else space], maxsplit=1)[0].rstrip(_PUNCTUATION)
    return _is_plain(hosts, scheme.lower())


def _is_plain(hosts: str, scheme: str) -> bool:
    return ":" not in hosts or (scheme not in _OF_BUCKETS and _HOSTS.fullmatch(hosts) is not None)


def _login_at(text: str, begin: int, end: int, last: int, scheme: str) -> _Login | None:
    """The login of the URL whose host or login begins at a place.

    Args:
        text: the text with the URL.
        begin: the place after the two slashes.
        end: the place where the URL ends.
        last: the place of the last ``@`` in the URL; -1 without one.
        scheme: its scheme.
    """
    scheme = scheme.lower()
    # A drive of Windows has a colon.
    if last <= begin or scheme == "file":
        return None
    slash = _END_OF_HOST.search(text, begin, end)
    user, at, hosts = text[begin : slash.start() if slash else end].rpartition("@")
    if ":" in user or not _is_plain(hosts, scheme):
        return _Login(begin, last, has_password=True)
    if user and at and scheme not in _OF_CONTAINERS:
        return _Login(begin, begin + len(user), has_password=False)
    return None
