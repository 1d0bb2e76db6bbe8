"""S10, S14, P3, P4: a login in a URL is found, whatever characters its password contains."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from streamgroups.url_logins import has_login, has_password, without_login, without_logins
from unit_tests.work import duration_ratio

#: No part of the other texts.
_MARKS = "QZ"
_SCHEMES = st.sampled_from(["s3", "s3a", "gs", "abfss", "postgresql", "https", "jdbc:postgresql", "hdfs"])
_PASSWORDS = st.text(st.sampled_from(_MARKS + "/@:[]%+=,;.-_!#?&$\\|"), min_size=1).map(lambda it: f"Q{it}")
_SPACED = st.text(st.sampled_from(_MARKS + "/@:[] '\"\n\t"), min_size=1).map(lambda it: f"Q{it}")


def _has_mark(text: str) -> bool:
    return any(mark in text for mark in _MARKS)


@given(_SCHEMES, _PASSWORDS | _SPACED)
@example("s3a", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
@example("s3", "a]b")
def test_S10_no_character_of_a_password_stays(scheme: str, password: str) -> None:
    url = f"{scheme}://key:{password}@bucket/state"
    assert has_password(url)
    assert has_login(url)
    assert without_login(url) == f"{scheme}://bucket/state"


@given(_SCHEMES, _PASSWORDS, st.sampled_from(["'{}'", '"{}"', "{}", "({})", '{{"url":"{}","x":"a@b"}}']))
def test_P4_no_character_of_a_password_stays_in_a_text(scheme: str, password: str, form: str) -> None:
    url = f"{scheme}://key:{password}@bucket/state"
    shown = without_logins(f"cannot open {form.format(url)}: wrong")
    assert shown == f"cannot open {form.format(f'{scheme}://***@bucket/state')}: wrong"


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/dir:1/a@b",
        "s3://bucket/a:b@c",
        "s3://bucket/date=1/x@y?region=eu",
        "http://host:8080/a@b",
        "http://[::1]:8080/a@b",
        "https://host:8081,other:8082/a@b",
        "abfss://container@account.dfs.core.windows.net/x:y@z",
        "file:///C:/x@y",
        "file:///data/a:b@c",
        "hdfs://namenode:8020/a@b",
        "host:9092/a@b",
        "/data/a:b@c",
        "SASL_SSL://host:9092",
        "http://host:8080; retry as ann@corp",
        "http://host:8080: timeout for user ann@corp.example in db",
        "http://host failed at 12:30 for ann@corp",
        "http://host failed at 12:30/a:b@c",
        "https://[::1]:8081, other:8082 (ann@corp)",
        "jdbc:sqlserver://host:1433;databaseName=x failed: ann@corp",
        "s3://bucket: forbidden for ann@corp",
        "s3://bucket/dir failed: ann@corp",
        "",
    ],
)
def test_S10_a_url_without_a_login_is_unchanged(url: str) -> None:
    assert not has_login(url)
    assert not has_password(url)
    assert without_login(url) == without_logins(url) == url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("As ann@corp: http://host:8080 failed", None),
        ("Failed http://host:8080: timeout for user ann@corp.example in db", None),
        ("Failed 'http://host:8080' for user ann@corp", None),
        ("Failed http://host:port\nWrite to ann@corp", None),
        ("a@b http://x:1 http://ann:p/w@db", "a@b http://x:1 http://***@db"),
        ("Failed http://ann:pa ss@db: wrong", "Failed http://***@db: wrong"),
        ("Failed 'http://ann:pa s s@db' for ann@corp", "Failed 'http://***@db' for ann@corp"),
        ("Failed http://ann:pa s s@db/x as bob@corp", "Failed http://***@db/x as bob@corp"),
        ("Failed s3://key:12 3@bucket/x", "Failed s3://***@bucket/x"),
        ("Failed 'http://ann:pa'?s@db' for ann@corp", "Failed 'http://***@db' for ann@corp"),
        ('Failed "http://ann:pa", s@db" for ann@corp', 'Failed "http://***@db" for ann@corp'),
        ("Failed http://ann:p/w s@db", "Failed http://***@db"),
    ],
)
def test_P4_a_login_ends_in_the_text_of_its_url(text: str, expected: str | None) -> None:
    assert without_logins(text) == (expected or text)
    assert has_password(text) == (expected is not None)


def test_S10_a_user_is_no_password() -> None:
    url = "postgresql://ann@db:5432/flights"
    assert has_login(url)
    assert not has_password(url)
    assert without_login(url) == "postgresql://db:5432/flights"
    assert without_login(url, keeps_user=True) == url


@given(st.text(st.sampled_from("ab:/@[]?#'\" \n.1")), st.sampled_from(["", "s3:", "s3://", "http://h:1"]))
def test_S10_any_text_has_a_result(text: str, scheme: str) -> None:
    for it in (scheme + text, text):
        assert has_login(it) or without_login(it) == it
        assert has_password(it) in (True, False)
        assert without_logins(without_logins(it)) == without_logins(it)


@pytest.mark.parametrize(
    "part",
    [
        "://",
        "://a",
        "a:",
        "'://a",
        "://a:b/",
        "://@",
        "x://a@b/",
        "[:",
        "a,",
        "://a:1,",
        "://[::1],",
        "://a:b ",
        "://a: ",
        "file://a:b ",
        "://a:b\n",
        "://a:b;",
    ],
)
@pytest.mark.parametrize("form", ["{}", "{}@", "x://{}@", "x://{}"])
def test_P4_the_cost_grows_with_the_length(part: str, form: str) -> None:
    def results(text: str) -> None:
        assert len(without_logins(text)) <= 4 * len(text)
        assert len(without_login(text)) <= len(text)
        assert has_password(text) in (True, False)

    # With a cost of the square, the ratio is 16.
    assert duration_ratio(results, lambda length: form.format(part * (length // len(part))), 75_000, enough=10) <= 10
