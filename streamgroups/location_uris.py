"""The parts of a location in another file system, in which Spark and Arrow must find the same directory.

Used by ``streamgroups_operators.locations`` and ``streamgroups_operators.hdfs``. In Hadoop, the path of a location is a text: it
contains ``%20``, ``#`` and ``?`` as they are. Arrow parses a URI, in which a path is percent-encoded. Source: Hadoop's
``Path(String)``; Arrow's ``FileSystem.from_uri``; RFC 3986.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from urllib.parse import quote

_FORM = re.compile(r"(?P<root>[A-Za-z][\w+.-]*:(?://[^/?]*)?)(?P<path>.*?)(?P<parameters>\?\w+=.*)?", re.DOTALL)
#: Characters that are themselves in the path of a URI.
_PLAIN = "/:@!$&'()*+,;="


@dataclass(frozen=True, slots=True)
class LocationUri:
    """A location in another file system.

    Args:
        root: the scheme, and the host or bucket with its credentials.
        path: the directory, as Hadoop has it.
        parameters: Arrow's parameters with their question mark, or empty.
    """

    root: str
    path: str
    parameters: str = ""

    @classmethod
    def parse(cls, location: str) -> LocationUri:
        """Parses a location. A question mark begins the parameters if a name and an equals sign follow.

        Raises:
            ValueError: if it has no scheme.

        >>> LocationUri.parse("s3://bucket/a b/50%?region=eu-west-1")
        LocationUri(root='s3://bucket', path='/a b/50%', parameters='?region=eu-west-1')
        >>> LocationUri.parse("gs://bucket/a//b/../c?/").path
        '/a/c?'
        """
        found = _FORM.fullmatch(location)
        if found is None:
            raise ValueError("It has no scheme.")
        path = found["path"] and f"/{posixpath.normpath(found['path']).lstrip('/')}"
        return cls(found["root"], path, found["parameters"] or "")

    def encoded(self, parameter: str = "") -> str:
        """The URI for Arrow, which decodes its path.

        Args:
            parameter: one more parameter, such as ``allow_delayed_open=true``.

        >>> LocationUri("s3://bucket", "/a b/50%", "?region=eu").encoded("scheme=http")
        's3://bucket/a%20b/50%25?region=eu&scheme=http'
        """
        added = f"{'&' if self.parameters else '?'}{parameter}" if parameter else ""
        return f"{self.root}{quote(self.path, safe=_PLAIN)}{self.parameters}{added}"
