"""Names of users as parts of paths: of groups, operators, effects and members.

Used where a directory or file has such a name: ``streamgroups_operators.locations``, ``streamgroups_spark.bridge.handoff``,
``streamgroups_kafka.membership.history_file`` and ``streamgroups_cli``. A name can contain any character, be ``..``, and be
longer than file systems permit. Source: POSIX (``NAME_MAX`` is 255 bytes on Linux and macOS); Kafka's group ids.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote, unquote

#: Less than 255 bytes, so that temporary files can have a prefix and a suffix.
_MAX_BYTES = 240
_HASH_BYTES = 64
_HASHED = re.compile(r"[\w.%-]*~[0-9a-f]{64}", re.ASCII)
#: A percent-encoded byte that was cut.
_CUT = re.compile(r"%[0-9A-F]?$")


def path_part(name: str, max_bytes: int = _MAX_BYTES) -> str:
    """Returns the part of a path for a name. Different names have different parts.

    A long name is cut, and its hash is added: see :func:`is_hashed`.

    Args:
        name: a name with any characters.
        max_bytes: the maximum length of the part, at least 65.

    >>> [path_part(name) for name in ("billing", "a/b", "..", "~")]
    ['billing', 'a%2Fb', '%2E%2E', '%7E']
    >>> path_part("billing" * 40)[:22], len(path_part("billing" * 40))
    ('billingbillingbillingb', 240)
    """
    part = quote(name, safe="", errors="surrogatepass").replace("~", "%7E")
    if part in (".", ".."):
        return part.replace(".", "%2E")
    if len(part) <= max_bytes:
        return part
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_CUT.sub('', part[: max_bytes - _HASH_BYTES - 1])}~{digest}"


def name_of(part: str) -> str:
    """Returns the name of a part that is not hashed.

    >>> name_of(path_part("../a~b"))
    '../a~b'
    """
    return unquote(part, errors="surrogatepass")


def is_hashed(part: str) -> bool:
    """Whether a part of a path contains the hash of a name, which is not in it as a whole.

    >>> is_hashed(path_part("billing" * 40)), is_hashed(path_part("billing"))
    (True, False)
    """
    return _HASHED.fullmatch(part) is not None


def label(name: str, max_bytes: int = 100) -> str:
    """Returns a start of a name for a file whose name is unique without it.

    Args:
        name: a name with any characters.
        max_bytes: the maximum length in bytes of UTF-8.

    >>> label("../billing"), label("é" * 90) == "é" * 50
    ('.._billing', True)
    """
    return re.sub(r"[^\w.-]", "_", name).encode()[:max_bytes].decode(errors="ignore")
