"""The forms of a location, and its parts in another file system, in which Spark and Arrow must find the same directory.

Used by ``streamgroups_operators.locations`` and ``streamgroups_operators.hdfs``, and for Delta tables by
``streamgroups_sinks.delta`` and ``streamgroups.connections``. In Hadoop, the path of a location is a text: it contains ``%20``, ``#``
and ``?`` as they are. Arrow parses a URI, in which a path is percent-encoded. Source: Hadoop's ``Path(String)``; Arrow's
``FileSystem.from_uri``; RFC 3986.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from urllib.parse import quote

from streamgroups.errors import InvalidOption

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*):")
#: Hadoop rejects a relative path after a scheme: it has no directory in which the path begins.
_RELATIVE = re.compile(_SCHEME.pattern + "(?!/)")
_HOST_OF_FILE = re.compile("file://(?!/)")
_FORM = re.compile(r"(?P<root>[A-Za-z][\w+.-]*:(?://[^/?]*)?)(?P<path>.*?)(?P<parameters>\?\w+=.*)?", re.DOTALL)
#: Characters that are themselves in the path of a URI.
_PLAIN = "/:@!$&'()*+,;="


def check_location(location: str, what: str) -> None:
    """Checks that a location with a scheme has an absolute path, and that ``file:`` has no host.

    Args:
        location: a path or a URI.
        what: its name, for the error. The error does not contain the location, which can contain a login.

    Raises:
        InvalidOption: if not.

    >>> check_location("file:/data/states", "stateLocation")
    >>> check_location("file:states", "stateLocation")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: stateLocation has a relative path after the scheme 'file:'. Begin the path with a slash, as \
in file:/PATH, or write a path without a scheme; a relative one begins with './'.
    """
    if (found := _RELATIVE.match(location)) is not None:
        scheme = found["scheme"]
        form = f"{scheme}:/PATH" if scheme == "file" else f"{scheme}://HOST/PATH"
        raise InvalidOption(
            f"{what} has a relative path after the scheme '{scheme}:'.",
            remedy=f"Begin the path with a slash, as in {form}, or write a path without a scheme; a relative one begins with './'.",
        )
    if _HOST_OF_FILE.match(location):
        raise InvalidOption(
            f"{what} has a host after 'file://', but a file has none.", remedy="Write file:/PATH, or the path alone."
        )


def path_or_url(location: str, what: str) -> str:
    """Returns a location in a form that is no relative path for a client of URLs, such as deltalake.

    Hadoop and Spark print ``file:/data``, which such a client takes for a directory with the name ``file:``.

    Args:
        location: a path or a URI.
        what: its name, for the error.

    Returns:
        A local path, or a URL with ``//``.

    Raises:
        InvalidOption: if it is another URI, such as ``dbfs:/data``.

    >>> path_or_url("file:/data/flights", "uri"), path_or_url("s3://bucket/flights", "uri")
    ('/data/flights', 's3://bucket/flights')
    """
    check_location(location, what)
    found = _SCHEME.match(location)
    if found is None or location.startswith("//", found.end()):
        return location
    if found["scheme"] == "file":
        return location[found.end() :]
    raise InvalidOption(
        f"{what} has the scheme '{found['scheme']}:' without a host or bucket.",
        remedy=f"Write {found['scheme']}://HOST/PATH, or a local path.",
    )


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
