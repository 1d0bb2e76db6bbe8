"""The faults of the storage of a campaign: lost responses to COMMIT, and requests of an object store with a fault."""

from __future__ import annotations

import doctest
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from component_tests import object_store
from component_tests.lossy_proxy import COMMITTED, LossyProxy
from component_tests.object_store import StoreFaults
from integration_tests.campaign import storage as campaign_storage
from integration_tests.campaign.members import CampaignMember
from integration_tests.campaign.settings import parser, replay_command, settings_of, turns_of
from integration_tests.campaign.storage import MIN_REQUESTS, SHARES, CampaignStorage
from integration_tests.campaign.turns import STORE_VICTIMS

#: The faults of the storage hit no process of it.
MEMBER = CampaignMember(Path(), "ann", {"options": {}})


def _faults_of(sink: str, *options: str) -> set[str]:
    settings = settings_of(parser(None).parse_args([sink, "--kills", "500", *options]))
    return {fault for _, fault in turns_of(settings, sink, "classic")}


@pytest.mark.parametrize(
    ("sink", "kind", "storage", "has_faults"),
    [
        ("kafka", "windows", "s3", True),
        ("delta", "stateless", "s3", True),
        ("kafka", "stateless", "s3", False),
        ("delta", "windows", "disk", False),
    ],
)
def test_the_store_has_faults_if_the_queries_use_it(sink: str, kind: str, storage: str, has_faults: bool) -> None:
    found = _faults_of(sink, "--kind", kind, "--storage", storage)
    assert found & set(STORE_VICTIMS) == (set(STORE_VICTIMS) if has_faults else set())


def test_only_postgresql_loses_a_response_to_commit() -> None:
    assert "commit-answer" in _faults_of("postgres")
    assert "commit-answer" not in _faults_of("kafka")


def test_the_command_that_repeats_a_campaign_has_its_storage() -> None:
    settings = settings_of(parser(None).parse_args(["delta", "--kills", "2", "--storage", "s3"]))
    assert replay_command(settings, "delta", "classic").endswith("--kills 2 --storage s3")


def test_each_fault_of_the_store_has_a_share_and_a_mode() -> None:
    assert set(SHARES) == set(MIN_REQUESTS) == set(STORE_VICTIMS) == {f"store-{it}" for it in object_store.FAULTS}


def test_a_share_of_the_requests_has_the_fault_and_is_counted() -> None:
    faults = StoreFaults()
    faults.set("lost", 0.3)
    found = Counter(faults.next("PUT") for _ in range(1_000))
    assert set(found) == {"", "lost"}
    assert 200 < found["lost"] < 400
    assert faults.counts == {"lost PUT": found["lost"]}
    faults.set("", 0.0)
    assert {faults.next("PUT") for _ in range(100)} == {""}
    faults.set("errors", 1.0)
    assert {faults.next("GET") for _ in range(100)} == {500, 503}


@pytest.mark.parametrize("fault", ["commit-answer", *STORE_VICTIMS])
def test_a_fault_that_the_storage_cannot_have_is_an_error(tmp_path: Path, fault: str) -> None:
    with CampaignStorage("kafka", "out", tmp_path, [fault], "disk", lambda _: None) as storage:
        assert (storage.to, storage.state_location) == ("out", str(tmp_path / "states"))
        with pytest.raises(AssertionError, match="needs"):
            storage.faults(lambda: True)[fault].begin(1, MEMBER)


def test_the_states_of_queries_that_write_to_postgresql_can_be_on_the_store(tmp_path: Path) -> None:
    conninfo = "host=127.0.0.1 port=1 dbname=x"
    with CampaignStorage("postgres", conninfo, tmp_path, ["commit-answer"], "s3", lambda _: None) as storage:
        assert storage.to != conninfo
        assert storage.state_location.startswith("s3://")


def test_a_fault_that_does_not_happen_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_storage, "_FAULT_S", 0.05)
    conninfo = "host=127.0.0.1 port=1 dbname=x"
    reports: list[str] = []
    with CampaignStorage("postgres", conninfo, tmp_path, ["commit-answer"], "disk", reports.append) as storage:
        assert storage.to != conninfo
        fault = storage.faults(lambda: True)["commit-answer"]
        fault.begin(1, MEMBER)
        with pytest.raises(AssertionError, match="commit-answer happens"):
            fault.finish("before-commit", MEMBER)
    assert not reports


class FakeStore:
    """A store with the objects of a table."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects, self.read = objects, list[str]()

    @property
    def sizes(self) -> dict[str, int]:
        return {name: len(it) for name, it in self.objects.items()}

    def content(self, key: str) -> bytes:
        self.read.append(key)
        return self.objects[key]


def test_the_copy_of_a_table_has_the_files_of_a_commit_before_the_commit(tmp_path: Path) -> None:
    first, second = (f"board/_delta_log/{n:020}.json" for n in range(2))
    store = FakeStore({second: b"2", "board/b.parquet": b"b", first: b"1", "board/a.parquet": b"a", "states/x": b"x"})
    storage = CampaignStorage("delta", str(tmp_path / "board"), tmp_path, [], "s3", lambda _: None)
    storage._store = store  # type: ignore[assignment]
    storage.copy()
    assert store.read == ["board/a.parquet", "board/b.parquet", first, second]
    assert (tmp_path / first).read_bytes() == b"1"
    storage.copy()
    assert len(store.read) == 4, "objects never change"


# ---- the proxy -------------------------------------------------------------------------------------------------------


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it receives."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(100):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def _answer(connection: socket.socket, *requests: bytes) -> bytes:
    found = b""
    for request in requests:
        connection.sendall(request)
        found = connection.recv(100)
    return found


def test_one_response_to_commit_is_lost_with_its_connection(echo: int) -> None:
    with LossyProxy(echo) as proxy:

        def connected() -> socket.socket:
            return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)

        with connected() as one:
            assert _answer(one, COMMITTED) == COMMITTED
            proxy.lose_next(COMMITTED)
            assert _answer(one, b"SELECT") == b"SELECT"
            # The response has two parts.
            assert _answer(one, COMMITTED[:5], COMMITTED[5:]) == b""
        with connected() as other:
            assert _answer(other, COMMITTED) == COMMITTED
        assert proxy.n_lost == 1


def test_a_server_that_returns_has_connections_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with LossyProxy(port) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as lost:
            assert lost.recv(1) == b""
        with (
            socket.create_server(("127.0.0.1", port)) as again,
            socket.create_connection(("127.0.0.1", proxy.port), timeout=5),
        ):
            again.settimeout(5)
            again.accept()[0].close()


@pytest.mark.parametrize("module", [campaign_storage, object_store])
def test_the_examples_run(module: object) -> None:
    failed, n = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, n > 0) == (0, True)
