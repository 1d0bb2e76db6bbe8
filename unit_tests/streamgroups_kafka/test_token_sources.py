"""A source renews its token in time, survives an outage of its provider, and shows no secret."""

from __future__ import annotations

import http.server
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from streamgroups.errors import InvalidOption, LoginRejected, TokenUnavailable
from streamgroups.fakes import FakeClock
from streamgroups.tokens import OAuthBearerToken
from streamgroups_kafka.client.client_credentials import ClientCredentials
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.token_providers import TokenSource

LIFE_MS = 100_000


class Provider:
    """Returns new tokens, or fails."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.calls, self.failure = clock, 0, None

    failure: BaseException | None

    def __call__(self) -> object:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return OAuthBearerToken(f"token-{self.calls}", self.clock() + LIFE_MS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_764_000_000_000)


@pytest.fixture
def provider(clock: FakeClock) -> Provider:
    return Provider(clock)


@pytest.fixture
def source(provider: Provider, clock: FakeClock) -> TokenSource:
    return TokenSource("The provider", provider, lambda text: text.replace("hunter2", "***"), clock)


def test_a_token_is_renewed_at_three_quarters_of_its_life(
    source: TokenSource, provider: Provider, clock: FakeClock
) -> None:
    first = source.current()
    clock.advance(LIFE_MS * 3 // 4 - 1)
    assert source.current() is first
    clock.advance(1)
    assert source.current().token == "token-2"
    assert provider.calls == 2


def test_a_failed_renewal_is_logged_and_the_token_is_used_until_it_expires(
    source: TokenSource, provider: Provider, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    first = source.current()
    provider.failure = ValueError("hunter2 and token-1 are no secrets")
    clock.advance(LIFE_MS * 3 // 4)
    assert source.current() is source.current() is first
    assert provider.calls == 2
    assert (
        "used until it expires: The provider raised ValueError: *** and *** are no secrets (test_token_sources.py, "
        in (caplog.text)
    )
    clock.advance(10_000)
    assert source.current() is first
    assert provider.calls == 3
    clock.advance(LIFE_MS // 4)
    with pytest.raises(TokenUnavailable, match="raised ValueError"):
        source.current()
    provider.failure = None
    clock.advance(1_000)
    assert source.current().token == "token-5"


def test_a_provider_that_exits_has_failed(source: TokenSource, provider: Provider) -> None:
    provider.failure = SystemExit("no credentials")
    with pytest.raises(TokenUnavailable, match="raised SystemExit: no credentials"):
        source.current()


def test_a_failed_renewal_is_repeated_when_the_token_expires(
    source: TokenSource, provider: Provider, clock: FakeClock
) -> None:
    source.current()
    provider.failure = ValueError("an outage")
    clock.advance(LIFE_MS - 5_000)
    source.current()
    provider.failure = None
    clock.advance(4_999)
    assert source.current().token == "token-1"
    clock.advance(1)
    assert source.current().token == "token-3"


def test_several_clients_do_not_repeat_a_failure(source: TokenSource, provider: Provider) -> None:
    provider.failure = KeyError("AWS_PROFILE")
    for _ in range(3):
        with pytest.raises(TokenUnavailable, match="KeyError: 'AWS_PROFILE'") as raised:
            source.current()
        assert raised.value.__context__ is None
    assert provider.calls == 1


def test_a_clock_that_is_set_back_does_not_prolong_a_failure(
    source: TokenSource, provider: Provider, clock: FakeClock
) -> None:
    provider.failure = KeyError("AWS_PROFILE")
    with pytest.raises(TokenUnavailable):
        source.current()
    provider.failure = None
    clock.advance(-3_600_000)
    assert source.current().token == "token-2"


def test_an_error_of_the_library_keeps_its_class(source: TokenSource, provider: Provider) -> None:
    provider.failure = LoginRejected("The client hunter2 is unknown.", remedy="Check it.")
    with pytest.raises(LoginRejected, match=r"The client \*\*\* is unknown"):
        source.current()


def test_what_librdkafka_receives(clock: FakeClock) -> None:
    token = OAuthBearerToken("abc", clock() + 1_500, "ann", {"pool": "p-1"})
    source = TokenSource("The provider", lambda: token, str, clock)
    assert source.for_librdkafka("") == ("abc", 1_764_000_001.5, "ann", {"pool": "p-1"})


def test_one_call_for_all_threads(provider: Provider, source: TokenSource) -> None:
    threads = [threading.Thread(target=source.current) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert provider.calls == 1


# Client credentials


OAUTH = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "hunter2!",
}


class _Endpoint(http.server.BaseHTTPRequestHandler):
    requests: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append(self.path)
        body = b'{"error": "invalid_scope", "error_description": "me:hunter2! may not"}'
        self.send_response(int(self.path.strip("/")))
        self.send_header("Location", "/200")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.requests.append(self.path)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    _Endpoint.requests = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (400, LoginRejected, "400 invalid_scope: .*Check 'kafka.sasl.oauthbearer.client.id'.*scope"),
        (302, LoginRejected, "302 invalid_scope"),
        (307, LoginRejected, "307 invalid_scope"),
        (429, TokenUnavailable, "429 invalid_scope"),
        (503, TokenUnavailable, "503 invalid_scope.*Check 'kafka.sasl.oauthbearer.token.endpoint.url'"),
        (200, LoginRejected, "returned no token: KeyError"),
    ],
)
def test_the_answer_of_a_token_endpoint(
    endpoint: str, caplog: pytest.LogCaptureFixture, status: int, error: type[Exception], text: str
) -> None:
    config = ClientConfig.from_options({**OAUTH, "sasl.oauthbearer.token.endpoint.url": f"{endpoint}/{status}"})
    with caplog.at_level(logging.DEBUG), pytest.raises(error, match=text) as raised:
        config.for_admin()
    assert "hunter2" not in str(raised.value) + caplog.text
    # A redirect would send the secret to another server.
    assert _Endpoint.requests == [f"/{status}"]


def test_a_ca_that_does_not_exist() -> None:
    properties = {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1", "https.ca.location": "/none"}
    with pytest.raises(TokenUnavailable, match=r"No such file.*kafka\.https\.ca\.location"):
        ClientCredentials(properties).request()


def test_configurations_with_the_same_login_share_a_source() -> None:
    given = {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1"}
    one, same = (ClientConfig.from_options({**given, "client.id": name}) for name in ("one", "two"))
    other = ClientConfig.from_options({**given, "sasl.oauthbearer.scope": "kafka"})
    assert one.tokens is same.tokens is not None
    assert other.tokens is not one.tokens
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, b"shared" if one.tokens is same.tokens else b"separate")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"shared"


def test_a_method_of_librdkafka_has_no_source() -> None:
    given = {name: value for name, value in OAUTH.items() if "client" not in name}
    azure = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.metadata.authentication.type": "azure_imds"}
    endpoint = {"sasl.oauthbearer.token.endpoint.url": "http://169.254.169.254/metadata/identity/oauth2/token"}
    assert ClientConfig.from_options({**given, **azure, **endpoint}).tokens is None


def test_a_provider_without_the_function() -> None:
    given = {name: value for name, value in OAUTH.items() if "client" not in name}
    for name, text in (("logging:no_function", "has no function 'no_function'"), ("logging:INFO", "has no function")):
        with pytest.raises(InvalidOption, match=text):
            ClientConfig.from_options({**given, "sasl.oauthbearer.token.provider": name}).for_admin()
