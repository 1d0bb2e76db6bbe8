"""The forms in which a program can show a secret. Used by ``secret_connections`` and by campaigns (``campaign.planted``).

Source: SEMANTICS P3, invariant I10; RFC 3986, RFC 4648.
"""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus


def forms_of(secret: str) -> dict[bytes, str]:
    """The forms of a secret, and their names: plain, in a URL, in JSON, and in base64 at each place of a longer text.

    >>> forms_of("a@b/c+d")[b"a%40b%2Fc%2Bd"]
    'percent-encoded'
    >>> any(it in base64.b64encode(b"ann:pl@nted+1/x") for it in forms_of("pl@nted+1/x"))
    True
    """
    found = {secret.encode(): "plain"}
    for encoded in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        found.setdefault(encoded.encode(), "percent-encoded")
    found.setdefault(json.dumps(secret)[1:-1].encode(), "in JSON")
    content = secret.encode()
    for before in range(3):
        # The characters that only depend on the secret: six bits each.
        whole = base64.b64encode(bytes(before) + content)
        part = whole[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
        found |= {part: "base64", part.translate(bytes.maketrans(b"+/", b"-_")): "base64"}
    return found
