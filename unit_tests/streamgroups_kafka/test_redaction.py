"""P4: texts of producers are redacted. The cost grows with their length only."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups_kafka.client.jaas import redacted

#: The rule for a JSON Web Token as one expression, whose cost is the square of a text.
_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*", re.IGNORECASE)
PARTS = st.sampled_from(
    [
        "eyJ",
        "EYJ",
        "-",
        ".",
        "..",
        "a",
        "abcdefgh",
        "_",
        " ",
        "eyJhbGciOiJ",
        ".e30.",
        "ü",
        "\n",
        "/",
        "eyJhbGciOiJ.e30.x",
    ]
)


@given(st.lists(PARTS, max_size=14).map("".join))
def test_a_token_is_found_as_by_one_expression(text: str) -> None:
    assert redacted(text, ()) == _TOKEN.sub("***", text)


@pytest.mark.parametrize(
    "part",
    ["-eyJ", "eyJ", ".eyJ", "eyJhbGciOiJ.", "eyJhbGciOiJ.a", "-eyJhbGciOiJ.a ", "password", 'password="', "secret = ", "://",
     "://a", "password='", 'secret="\\', "a.", "-", ".", " ", "password=\\\""],
)  # fmt: skip
def test_the_cost_grows_with_the_length(part: str) -> None:
    # With a cost of the square, each of these texts would take minutes.
    text = part * (200_000 // len(part))
    assert len(redacted(text, ())) <= 2 * len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2ln failed", "Bearer *** failed"),
        ("jwt-eyJhbGciOiJIUzI1NiJ9.e30. x", "jwt-*** x"),
        ("my.app.password=hunter2", "my.app.password=***"),
        ("password=eyJhbGciOiJIUzI1NiJ9.e30.c2ln", "password=***"),
        ("https://ann:eyJhbGciOiJIUzI1NiJ9.e30.c2ln@idp/x", "https://***@idp/x"),
        ("aaaaaaaaaaaa.b.eyJhbGciOiJ.xx.yy.z", "aaaaaaaaaaaa.b.***.z"),
    ],
)
def test_secrets_are_replaced(text: str, expected: str) -> None:
    assert redacted(text, ()) == expected
