"""Images have digests, and the ports of a test's container are published on the loopback address only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from streamgroups_testkit import containers

COMPOSE = Path(__file__).parents[1] / "docker" / "compose.yaml"
DIGEST = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


def test_images_have_digests() -> None:
    defaults = re.findall(r"image: \$\{\w+:-(\S+)\}", COMPOSE.read_text(encoding="utf-8"))
    assert len(defaults) == COMPOSE.read_text(encoding="utf-8").count("image:") == 2
    for image in (*defaults, containers.DEFAULT_IMAGE):
        assert DIGEST.fullmatch(image), image
    assert containers.DEFAULT_IMAGE in defaults


class Container:
    """A container that starts immediately."""

    host = "localhost"

    def __init__(self, _image: str, **_: Any) -> None:
        self.ports: dict[str, Any] = {}
        started.append(self)

    def get_docker_client(self) -> Any:
        return type("Client", (), {"host": lambda _: self.host})()

    def with_envs(self, **_: str) -> Container:
        return self

    def with_bind_ports(self, container: int, host: int) -> Container:
        self.ports[str(container)] = host
        return self

    def start(self) -> None: ...


started: list[Container] = []


@pytest.mark.parametrize(("host", "address"), [("localhost", "127.0.0.1"), ("docker.example", None)])
def test_ports_are_published_where_they_are_reached(
    host: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started.clear()
    monkeypatch.setattr(Container, "host", host)
    monkeypatch.setattr(containers, "DockerContainer", Container)
    kafka = containers.ContainerKafka()
    kafka._start_on_a_free_port()
    port = int(kafka._bootstrap_servers.rpartition(":")[2])
    assert [c.ports for c in started] == [{"9092": (address, port) if address else port}]
