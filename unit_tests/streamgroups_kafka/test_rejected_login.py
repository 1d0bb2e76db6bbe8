"""When a rejected login ends the requests of a running query, without a broker."""

from __future__ import annotations

import pytest

from streamgroups.errors import BrokerUnreachable, NotAuthorized
from streamgroups_kafka.admin.rejected_login import RejectedLogin
from streamgroups_kafka.client.config import ClientConfig

OUTAGE = BrokerUnreachable("The topics could not be read: no broker responded.", remedy="Check the address.")
REJECTION = NotAuthorized("The cluster could not be read: authentication failed.", remedy="Check the password.")


class Login(RejectedLogin):
    """A login with a decision of the brokers that the test makes."""

    def __init__(self, protocol: str = "SASL_SSL", servers: str = "kafka:9092") -> None:
        self.now_s, self.checks = 0.0, 0
        self.found: NotAuthorized | None = REJECTION
        super().__init__(
            ClientConfig((("security.protocol", protocol), ("bootstrap.servers", servers))), lambda: self.now_s
        )

    def rejection(self) -> NotAuthorized | None:
        self.checks += 1
        return self.found


def test_a_rejection_is_retried_like_an_outage_and_then_returned() -> None:
    login = Login()
    for now_s in (0, 7, 14.9):
        login.now_s = now_s
        error = login.judged(OUTAGE)
        assert (type(error), error.what, error.remedy) == (BrokerUnreachable, REJECTION.what, REJECTION.remedy)
    login.now_s = 15
    assert login.judged(OUTAGE) is REJECTION


@pytest.mark.parametrize("is_accepted_again", [True, False])
def test_a_login_that_is_accepted_meanwhile_begins_another_outage(is_accepted_again: bool) -> None:
    login = Login()
    login.judged(OUTAGE)
    login.now_s = 14
    if is_accepted_again:
        login.succeeded()
    else:
        # No broker responds, or another one accepts the login.
        login.found = None
        assert login.judged(OUTAGE) is OUTAGE
        login.found = REJECTION
    login.now_s = 28
    assert login.judged(OUTAGE).retriable
    login.now_s = 43
    assert login.judged(OUTAGE) is REJECTION


def test_a_client_without_a_login_is_not_checked() -> None:
    login = Login("PLAINTEXT")
    assert login.judged(OUTAGE) is OUTAGE
    assert login.checks == 0


def test_the_rejection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    # The clients of one cluster share a log, which limits its lines.
    Login(servers="logged:9092").judged(OUTAGE)
    assert REJECTION.what in caplog.text
