"""Planted secrets are found in each form, in each file of a campaign, and nowhere else."""

from __future__ import annotations

import base64
import doctest
import json
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from integration_tests import secret_forms
from integration_tests.campaign import planted as campaign_planted
from integration_tests.campaign.planted import Planted, new_secret
from integration_tests.secret_forms import forms_of


def test_a_directory_without_a_secret_has_no_finding(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_bytes(b"\xff" * 100)
    (tmp_path / "ann.log").write_text("password=*** pl@nted+0123456789abcdef/x")
    found = Planted().search(tmp_path)
    assert (found.n_files, found.n_bytes > 100, found.findings) == (2, True, ())


@pytest.mark.parametrize("name", ["client", "database", "error"])
@pytest.mark.parametrize(
    ("how", "encode"),
    [
        ("plain", str),
        ("percent-encoded", lambda it: quote(it, safe="")),
        ("percent-encoded", quote_plus),
        ("percent-encoded", quote),
        ("base64", lambda it: base64.b64encode(f"ann:{it}".encode()).decode()),
        ("base64", lambda it: base64.urlsafe_b64encode(f"{it}, ann".encode()).decode()),
    ],
)
def test_a_secret_is_found(tmp_path: Path, name: str, how: str, encode: object) -> None:
    planted = Planted()
    secret = getattr(planted, name)
    directory = tmp_path / "history" / "members"
    directory.mkdir(parents=True)
    (directory / "ann.jsonl").write_text(f'{{"login": "{encode(secret)}"}}')  # type: ignore[operator]
    (finding,) = planted.search(tmp_path).findings
    assert finding.startswith("history/members/ann.jsonl: the password of ")
    assert finding.endswith(f", {how}")
    assert secret not in finding


def test_a_secret_at_the_border_of_two_parts_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_planted, "_PART_BYTES", 64)
    planted = Planted()
    for before in range(40, 66):
        (tmp_path / "big.log").write_text("." * before + planted.error + "." * 100)
        assert planted.search(tmp_path).findings, before


@given(st.text(st.characters(codec="utf-8"), min_size=6), st.binary(max_size=5), st.binary(max_size=5))
def test_base64_of_any_longer_text_contains_a_form(secret: str, before: bytes, after: bytes) -> None:
    text = base64.b64encode(before + secret.encode() + after)
    assert any(it in text for it, how in forms_of(secret).items() if how == "base64")


def test_the_queries_receive_the_secrets() -> None:
    planted = Planted()
    assert len({planted.client, planted.database, planted.error}) == 3
    assert planted.client in planted.settings.values()
    assert planted.error in "".join(planted.environment.values())
    assert conninfo_to_dict(planted.conninfo("host=db user=ann"))["password"] == planted.database
    secret = new_secret()
    assert len({*forms_of(secret)}) >= 5
    assert json.dumps(secret)[1:-1] == secret


def test_the_examples_run() -> None:
    failed, n = doctest.testmod(secret_forms)
    assert (failed, n > 0) == (0, True)
