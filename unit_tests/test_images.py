"""Images have digests, packages have hashes, and the ports of a test's container are published on the loopback address only."""

from __future__ import annotations

import importlib.metadata
import re
from configparser import ConfigParser
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streamgroups_testkit import containers
from unit_tests.documents import ROOT

COMPOSE = ROOT / "docker" / "compose.yaml"
DIGEST = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


def test_images_have_digests() -> None:
    defaults = re.findall(r"image: \$\{\w+:-(\S+)\}", COMPOSE.read_text(encoding="utf-8"))
    assert len(defaults) == COMPOSE.read_text(encoding="utf-8").count("image:") == 2
    for image in (*defaults, containers.DEFAULT_IMAGE):
        assert DIGEST.fullmatch(image), image
    assert containers.DEFAULT_IMAGE in defaults


def pins(name: str) -> set[str]:
    """The entries of a file with pins: a package with its version, its marker and its hashes."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {it.strip() for it in re.split(r"\n(?=\S)", text) if not it.startswith("#")}


def names(entries: set[str]) -> set[str]:
    return {canonicalize_name(re.split("[=<>~ ]", it)[0]) for it in entries}


def needed_by(requirements: list[str]) -> set[str]:
    """These packages, and all packages that they need on this machine."""
    todo = [it for it in map(Requirement, requirements) if it.marker is None or it.marker.evaluate()]
    found = set[tuple[str, str]]()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in found:
                continue
            found.add((name, extra))
            for text in importlib.metadata.requires(name) or []:
                dependency = Requirement(text)
                if dependency.marker is None or dependency.marker.evaluate({"extra": extra}):
                    todo.append(dependency)
    return {name for name, _ in found}


def test_the_image_of_spark_has_the_pinned_packages_of_its_extras() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    sections = [setup["options"]["install_requires"], *(extras[it] for it in ("cli", "metrics", "postgres"))]
    # Of the extra "spark", only pandas: the image has its own PySpark.
    lines = [it for section in sections for it in section.split("\n") if it and not it.startswith("#")]
    pandas = [it for it in extras["spark"].split("\n") if it.startswith("pandas")]
    of_image = pins("docker/spark/requirements.txt")
    assert of_image <= pins("constraints.txt"), "a version or a hash differs"
    assert all("==" in it and "--hash=sha256:" in it for it in of_image)
    assert needed_by([*lines, *pandas]) <= names(of_image)
    assert "pyspark" not in names(of_image)


def test_the_image_of_spark_installs_nothing_else() -> None:
    dockerfile = (ROOT / "docker" / "spark" / "Dockerfile").read_text(encoding="utf-8")
    installed = re.findall(r"pip install ((?:.*\\\n)*?.*?)(?: \\\n\s*&&|\n)", dockerfile)
    assert len(installed) == dockerfile.count("pip install") == 2
    assert "--require-hashes --no-deps" in installed[0]
    assert "--no-index --no-deps /tmp/wheels/streamgroups-*.whl" in installed[1]
    assert "pip check" in dockerfile


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
