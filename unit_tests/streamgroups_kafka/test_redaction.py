"""P4: texts of producers are redacted. The cost grows with their length only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from urllib.parse import quote

import hypothesis.strategies as st
import pytest
from hypothesis import example, given
from psycopg.conninfo import make_conninfo

from streamgroups.connections.redaction import redacted
from unit_tests.work import duration_ratio

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
     "://a", "password='", 'secret="\\', "a.", "-", ".", " ", "password=\\\"", "password:", "password ", "a=", "a ", "accesskey",
     "password=\\", "password='\\\\' ", "\\", "\\\"", "password=''", 'a"', "password=...", "authorization: basic ", "x://a:b@",
     'password="x" ', "secret: digest ", "passwd%3D", "password->", "'password':a}", "'password': a, ", "password=a(", "password=a('", "password=''a", "'password='x''",
     "password=\\\\\"", "'password': a"],
)  # fmt: skip
def test_the_cost_grows_with_the_length(part: str) -> None:
    def results(text: str) -> None:
        assert len(redacted(text, ())) <= 2 * len(text)
        beginning = f"password='{text[: len(text) // 5]}"
        assert len(redacted(beginning, ["hunter2", "pass"], {"a.b"})) <= 2 * len(beginning)

    # With a cost of the square, the ratio is 16.
    assert duration_ratio(results, lambda length: part * (length // len(part)), 75_000, enough=10) <= 10


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


#: No part of the other texts.
_MARKS = "QZ"
_VALUES = st.text(st.sampled_from(_MARKS + "/@:[]%+=,;.-_!#?&$\\|'\"(){}<> \t"), min_size=1).map(lambda it: f"Q{it}Z")
_NAMES = st.sampled_from(
    [
        "password",
        "sslpassword",
        "aws_secret_access_key",
        "access_token",
        "AccountKey",
        "passphrase",
        "sasl.password",
        "apiKey",
    ]
)
_FORMS: dict[str, Callable[[str, str], str]] = {
    "libpq": lambda _, value: make_conninfo(host="db", password=value, user="ann"),
    "json": lambda name, value: json.dumps({"host": "db", name: value, "user": "ann"}),
    "repr of a mapping": lambda name, value: repr({"host": "db", name: value, "user": "ann"}),
    "repr of an argument": lambda name, value: f"Client(host='db', {name}={value!r}, user='ann')",
    "scala": lambda name, value: f"Map(host -> db, {name} -> {json.dumps(value)}, user -> ann)",
    "url": lambda _, value: f"postgresql://ann:{''.join(value.split())}@db/flights",
    "query of a url": lambda name, value: f"https://db/x?user=ann&{name}={quote(value, safe='')}",
    "encoded": lambda name, value: quote(f"user=ann {name}={value}", safe=""),
}
_TEXTS: dict[str, Callable[[str], str]] = {
    "itself": str,
    "repr": repr,
    "json": json.dumps,
    "json in json": lambda text: json.dumps({"cfg": json.dumps({"dsn": text})}),
    "repr of json": lambda text: repr(json.dumps({"dsn": text})),
    "sentence": lambda text: f"It failed: {text}",
}


@given(_VALUES, _NAMES, st.sampled_from(sorted(_FORMS)), st.sampled_from(sorted(_TEXTS)))
@example('Q":Z', "password", "url", "itself")
@example('Q":Z', "password", "libpq", "repr of json")
@example("'Q Z", "password", "libpq", "itself")
@example("'Q Z", "password", "libpq", "repr")
@example("Q Z", "password", "json", "json in json")
def test_P4_no_character_of_a_quoted_or_escaped_value_stays(value: str, name: str, form: str, text: str) -> None:
    given_text = _TEXTS[text](_FORMS[form](name, value))
    shown = redacted(given_text, ())
    assert not [mark for mark in _MARKS if mark in shown]
    assert "***" in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"password='\'hunter2 tail' user=ann", "password=*** user=ann"),
        (r"password=\"hunter2\" failed", "password=*** failed"),
        (r'{"cfg": "{\"password\": \"hunter2tail\"}"}', r'{"cfg": "{\"password\": ***}"}'),
        ("password=hunter,2 failed", "password=*** failed"),
        ("password=hunter2, user=ann.", "password=***, user=ann."),
        ('{"dsn":"host=db password=hunter2","user":"ann"}', '{"dsn":"host=db password=***","user":"ann"}'),
        ('{"password": 123, "user": 7}', '{"password": ***, "user": 7}'),
        ("secret_access_key=x access_token=x AccountKey=x passphrase=x PWD=x", "secret_access_key=*** access_token=*** "
         "AccountKey=*** passphrase=*** PWD=***"),
        ("Authorization: Basic YW5uOnB3 failed", "Authorization: *** failed"),
        ('"authorization": "Bearer abc"', '"authorization": ***'),
        ('Proxy-Authorization: Digest username="ann", response="x"\nHost: a', "Proxy-Authorization: ***\nHost: a"),
        ("?sv=2&sig=ab%3D", "?sv=2&sig=***"),
        ("password%3Dhunter2%26x", "password%3D***"),
        ("postgresql://ann:p@ss/w0rd@db", "postgresql://***@db"),
        ("password='hunter2 and the text is trunc", "password=***"),
        ("bad 'host=db password='hunter2 and the text is trunc", "bad 'host=db password=***"),
        ("Cannot connect with 'host=db user=ann password='hunter2''.", "Cannot connect with 'host=db user=ann password=***'."),
        ("ValueError: bad conninfo 'password='hunter2''", "ValueError: bad conninfo 'password=***'"),
        ("ValueError: bad conninfo 'password='hun''ter2''", "ValueError: bad conninfo 'password=***'"),
        ("ValueError: bad conninfo 'password='hun''ter2", "ValueError: bad conninfo 'password=***"),
        ("password='hun'' ter2 and the text is trunc", "password=***"),
        ('bad JAAS "x required password="hunter2""', 'bad JAAS "x required password=***"'),
        ("password=b'hunter 2', x", "password=***, x"),
        ('"sasl.password": hunter2', '"sasl.password": ***'),
        ('"sasl.password": hunter2\n"host": a', '"sasl.password": ***\n"host": a'),
        ("'sasl.password': hunter2 user: ann", "'sasl.password': *** user: ann"),
        ("""KeyError: "'sasl.password': hunter2\"""", """KeyError: "'sasl.password': ***\""""),
        ("""{"cfg": "{'password':hunter2}"}""", """{"cfg": "{'password':***}"}"""),
        ('{"password":p@ss/w0rd!x}', '{"password":***}'),
        ('{"password":p,a}b]c,"user":"ann"}', '{"password":***,"user":"ann"}'),
        ("[{'password': hun#ter2}, {'user': ann}]", "[{'password': ***}, {'user': ann}]"),
        ("{'password': nullify, 'user': null}", "{'password': ***, 'user': null}"),
        ("'password=hun('", "'password=***'"),
        ('password=hun("&"ter2 user=ann', "password=*** user=ann"),
        ("""export password='hun'"'"'ter 2'; x""", "export password=***; x"),
        ("""export password='hun'\\''ter 2'; x""", "export password=***; x"),
        (r"""'export password=\'hun\'"\'"\'ter 2\'; x'""", "'export password=***; x'"),
        ("{'sasl.password': SecretStr('hun ter2')}", "{'sasl.password': ***}"),
        ("Client(password=Secret(value='hun ter2'), user='ann')", "Client(password=***, user='ann')"),
    ],
)  # fmt: skip
def test_P4_values_are_replaced(text: str, expected: str) -> None:
    assert redacted(text, ()) == expected
    assert redacted(expected, ()) == expected


@pytest.mark.parametrize(
    "text",
    [
        'Use one module: <class>LoginModule required username="..." password="...";',
        "Option 'kafka.sasl.jaas.config': the ScramLoginModule requires username and password.",
        "Option 'kafka.sasl.password' is given twice.",
        "Unexpected token: x in line 1",
        'Wrote "password=" to the log',
        "GROUP_AUTHORIZATION_FAILED: Broker: Group authorization failed",
        "abfss://container@account.dfs.core.windows.net/x:y@z",
        "http://proxy:8080/a@b and key=('id',) and access_key_id=AKIA",
        '{"password": null, "user": "ann"}',
        "[{'password':None}]",
        '"password": null',
        '{"sasl.password": {"env": "KAFKA_PASSWORD"}}',
        "Option 'kafka.sasl.password': must be set",
        "'sasl.password': The value is missing. Option 'x': a\n'sasl.password': field required",
    ],
)
def test_P4_texts_without_secrets_are_unchanged(text: str) -> None:
    assert redacted(text, ()) == text


@given(st.lists(st.sampled_from(["abcd", "bcde", "cdef", "x", " "]), max_size=8).map("".join))
def test_P4_overlapping_secrets_are_replaced_whole(text: str) -> None:
    secrets = ["abcd", "abcdef", "cdef", "abc"]
    secret = {
        at + i for it in secrets[:3] for at in range(len(text)) if text.startswith(it, at) for i in range(len(it))
    }
    assert redacted(text, secrets).replace("*", "") == "".join(it for at, it in enumerate(text) if at not in secret)


@given(st.text(st.sampled_from("QZ\"'\\/ é&"), min_size=4))
def test_P4_a_known_secret_is_replaced_in_each_form(secret: str) -> None:
    for form in (secret, json.dumps(secret), repr(secret), quote(secret, safe="")):
        shown = redacted(f"<{form}>", [secret])
        assert shown in ("<***>", '<"***">', "<'***'>")


def test_P4_a_secret_in_the_name_of_an_option_stays() -> None:
    names = {"session.timeout.ms", "kafka."}
    text = "Option 'kafka.session.timeout.ms' of the 'kafka.' options: kafka, kafka.x, session.timeout.ms-1"
    shown = redacted(text, ["kafka", "session"], names)
    assert shown == "Option 'kafka.session.timeout.ms' of the 'kafka.' options: ***, ***.x, ***.timeout.ms-1"
    assert redacted("session.timeout.ms hunter2", ["session.timeout.ms hunter2"], names) == "***"
