"""Tokens stay in their process, are not shown, and are checked before a client uses them."""

from __future__ import annotations

import copy
import pickle
import sys
import types

import pytest

from streamgroups.errors import InvalidOption, StreamGroupsError, TokenUnavailable
from streamgroups.tokens import OAuthBearerToken, checked_token, renew_at_ms
from unit_tests.documents import ROOT, blocks

NOW_MS = 1_764_000_000_000
GOOD = OAuthBearerToken("eyJhbGciOi.x.y", NOW_MS + 1_000, "ann", {"logicalCluster": "lkc-1"})


def test_a_token_is_not_shown() -> None:
    for shown in (repr(GOOD), str(GOOD), f"{GOOD}"):
        assert "eyJ" not in shown
        assert "lkc" not in shown


def test_a_token_does_not_leave_its_process() -> None:
    for move in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="must not leave its process"):
            move(GOOD)


def test_a_valid_token_is_returned() -> None:
    assert checked_token(GOOD, "The provider", NOW_MS) is GOOD


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (None, InvalidOption, "returned a NoneType. Return OAuthBearerToken"),
        ("eyJhbGciOi", InvalidOption, "returned a str."),
        (OAuthBearerToken("", NOW_MS + 1), InvalidOption, "empty"),
        (OAuthBearerToken("eyJ\n", NOW_MS + 1), InvalidOption, "without a line end"),
        (OAuthBearerToken("Bearer eyJ", NOW_MS + 1), InvalidOption, "without 'Bearer'"),
        (OAuthBearerToken("eyJ", NOW_MS + 0.5), InvalidOption, "expires_at_ms as float"),  # type: ignore[arg-type]
        (OAuthBearerToken("eyJ", True), InvalidOption, "expires_at_ms as bool"),
        (OAuthBearerToken("eyJ", NOW_MS + 1, extensions={"auth": "x"}), InvalidOption, "malformed extensions"),
        (OAuthBearerToken("eyJ", NOW_MS + 1, extensions={"a": "\x01b"}), InvalidOption, "malformed extensions"),
        (OAuthBearerToken("eyJ", NOW_MS), TokenUnavailable, "expired 0 s ago. Request a new token"),
        (OAuthBearerToken("eyJ", NOW_MS - 2_000), TokenUnavailable, "expired 2 s ago"),
        (OAuthBearerToken("eyJ", NOW_MS // 1_000 + 900), TokenUnavailable, "it seems to be in seconds"),
    ],
)
def test_an_invalid_token_is_rejected(answer: object, error: type[StreamGroupsError], text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        checked_token(answer, "The provider", NOW_MS)
    assert "eyJ" not in str(raised.value)


def test_a_token_is_renewed_at_three_quarters_of_its_life() -> None:
    assert renew_at_ms(1_000, 2_000) == 1_750


def test_the_provider_of_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a substitute for the package of AWS: its function returns the token and the time of its expiry."""
    signer = types.SimpleNamespace(generate_auth_token=lambda region: (f"token-of-{region}", NOW_MS + 900_000))
    package = types.ModuleType("aws_msk_iam_sasl_signer")
    monkeypatch.setattr(package, "MSKAuthTokenProvider", signer, raising=False)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", package)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    (block,) = [it for it in blocks(ROOT / "docs" / "security.rst") if "aws_msk_iam_sasl_signer" in it.code]
    names: dict[str, object] = {}
    exec(block.code, names)
    made = names["token"]
    assert callable(made)
    assert checked_token(made(), "The provider", NOW_MS).token == "token-of-eu-west-1"
