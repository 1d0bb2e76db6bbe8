"""The Compose file of docs/deploy.rst refers to files, services and ports that exist."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import pytest
import yaml

import streamgroups as sg
from unit_tests.documents import ROOT

DOCKER = ROOT / "docker"


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / name).read_text(encoding="utf-8"))
    return found


CLUSTER = load("cluster.yaml")
INCLUDED = [load(name) for name in CLUSTER["include"]]
SERVICES: dict[str, Any] = CLUSTER["services"]
DOCKERFILE = (DOCKER / "spark" / "Dockerfile").read_text(encoding="utf-8")
ALL = {**SERVICES, **{name: it for file in INCLUDED for name, it in file["services"].items()}}


def mounts(service: str) -> list[tuple[str, str]]:
    return [(source, target) for source, target, *_ in (it.split(":") for it in ALL[service].get("volumes", ()))]


DRIVERS = ("doctor", "flights", "hours")
PROGRAMS = ("flights", "hours")


def daemon_option(service: str, option: str) -> str:
    """The value of an option of a master or worker. They reject options of the form ``--host=name``."""
    arguments = words(service)
    assert not any(re.match("--.*=", it) for it in arguments)
    return arguments[arguments.index(f"--{option}") + 1]


def words(service: str) -> list[str]:
    return [str(it) for it in SERVICES[service].get("command", ())]


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_refers_to_what_exists(service: str) -> None:
    it = SERVICES[service]
    default = re.sub(r"^\$\{\w+:-(.+)\}$", r"\1", it["image"])
    digest = "" if default == "streamgroups/spark:local" else "@sha256:[0-9a-f]{64}"
    assert re.fullmatch(rf"[\w./-]+:[\w.-]+{digest}", default), "the image of a tag changes"
    if "build" in it:
        assert (
            DOCKER / it["build"]["context"] / it["build"]["dockerfile"]
        ).resolve() == DOCKER / "spark" / "Dockerfile"
    assert set(it.get("depends_on", ())) <= set(ALL)
    for name, condition in it.get("depends_on", {}).items():
        assert condition == {"condition": "service_healthy"}
        assert "healthcheck" in ALL[name]
    for source, _ in mounts(service):
        if source.startswith("."):
            assert (DOCKER / source).is_file(), source
        else:
            assert source in CLUSTER["volumes"]


def test_published_ports_are_local_and_can_be_changed() -> None:
    ports = [port for it in ALL.values() for port in it.get("ports", ())]
    found = [re.fullmatch(r"127\.0\.0\.1:\$\{STREAMGROUPS_(\w+)_PORT:-(\d+)\}:(\d+)", port) for port in ports]
    assert all(it and it[2] == it[3] for it in found), ports
    assert len({it[1] for it in found if it}) == len({it[2] for it in found if it}) == len(ports)
    advertised = ALL["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert "HOST://localhost:${STREAMGROUPS_KAFKA_PORT:-9092}," in advertised


def test_one_service_builds_the_image_from_that_of_the_dockerfile() -> None:
    """Compose would build it once for each service that has a build section."""
    (default,) = re.findall(r"^ARG SPARK_IMAGE=(\S+)$", DOCKERFILE, re.M)
    (builder,) = (it for it in SERVICES.values() if "build" in it)
    assert builder["build"]["args"] == {"SPARK_IMAGE": f"${{STREAMGROUPS_SPARK_IMAGE:-{default}}}"}
    users = [it for it in SERVICES.values() if it["image"] == builder["image"] and it is not builder]
    assert len(users) == 5
    assert all(it["pull_policy"] == "never" for it in users), "no registry may replace the local image"


def test_variables_are_documented_where_they_are_read() -> None:
    for name in ("cluster.yaml", "compose.yaml"):
        comments, _, rest = (DOCKER / name).read_text(encoding="utf-8").partition("\nservices:")
        for variable in re.findall(r"\$\{(\w+):-", rest):
            assert variable in comments, variable


def test_programs_of_spark_use_the_address_of_the_master() -> None:
    assert daemon_option("spark-master", "host") == SERVICES["spark-master"]["hostname"]
    port = daemon_option("spark-master", "port")
    url = f"spark://spark-master:{port}"
    assert url in words("spark-worker")
    assert f"/dev/tcp/spark-master/{port}" in SERVICES["spark-master"]["healthcheck"]["test"][-1]
    for driver in DRIVERS:
        assert f"--master={url}" in words(driver)
        assert f"--conf=spark.driver.host={SERVICES[driver]['hostname']}" in words(driver)


def test_the_workers_have_room_for_all_drivers() -> None:
    """The doctor runs beside the queries."""

    def offered(option: str) -> int:
        value = daemon_option("spark-worker", option)
        return int(value.removesuffix("g")) * int(SERVICES["spark-worker"]["deploy"]["replicas"])

    def required(driver: str, setting: str) -> int:
        (value,) = (it.rpartition("=")[2] for it in words(driver) if setting in it)
        return int(value.removesuffix("m"))

    cores = [required(driver, "spark.cores.max") for driver in DRIVERS]
    assert sum(cores) <= offered("cores")
    executors = [cores[i] // required(driver, "spark.executor.cores") for i, driver in enumerate(DRIVERS)]
    memory = [executors[i] * required(driver, "spark.executor.memory") for i, driver in enumerate(DRIVERS)]
    assert sum(memory) <= offered("memory") * 1024


def test_clients_use_the_listener_of_the_network() -> None:
    listener = re.search(r"NETWORK://([\w:]+)", ALL["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"])
    assert listener is not None
    for program in PROGRAMS:
        assert SERVICES[program]["environment"]["BROKERS"] == listener[1]
    for service in ("doctor", "exporter"):
        assert f"--bootstrap-server={listener[1]}" in words(service)


def test_prometheus_and_grafana_find_what_is_mounted_and_exported() -> None:
    prometheus = load("cluster/prometheus.yml")
    assert set(prometheus["rule_files"]) <= {target for _, target in mounts("prometheus")}
    targets = {it for job in prometheus["scrape_configs"] for part in job["static_configs"] for it in part["targets"]}
    (listen,) = (it.rpartition(":")[2] for it in words("exporter") if it.startswith("--listen="))
    assert targets == {f"exporter:{listen}", f"flights:{SERVICES['flights']['environment']['METRICS_PORT']}"}
    (source,) = load("cluster/grafana-datasource.yml")["datasources"]
    assert source["url"] == f"http://prometheus:{SERVICES['prometheus']['ports'][0].rpartition(':')[2]}"
    (provider,) = load("cluster/grafana-dashboards.yml")["providers"]
    (dashboard,) = (target for path, target in mounts("grafana") if path.endswith("grafana_dashboard.json"))
    assert dashboard.rpartition("/")[0] == provider["options"]["path"]


def test_grafana_has_readers_and_no_account() -> None:
    settings = SERVICES["grafana"]["environment"]
    assert settings["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert settings["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == settings["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert settings["GF_AUTH_BASIC_ENABLED"] == "false"


def test_the_database_is_that_of_the_compose_file() -> None:
    postgres = ALL["postgres"]["environment"]
    login = f"{postgres['POSTGRES_USER']}:{postgres['POSTGRES_PASSWORD']}"
    expected = f"postgresql://{login}@postgres/{postgres['POSTGRES_DB']}"
    assert SERVICES["hours"]["environment"]["DATABASE"] == expected


@pytest.mark.parametrize("service", PROGRAMS)
def test_a_program_is_mounted_and_calls_the_library_with_valid_arguments(service: str) -> None:
    sources = {target: source for source, target in mounts(service)}
    (program,) = (it for it in words(service) if it.endswith(".py"))
    code = (DOCKER / sources[program]).read_text(encoding="utf-8")
    assert "/checkpoints" in sources
    assert "--owner=spark /checkpoints\n" in DOCKERFILE
    assert all(name in SERVICES[service]["environment"] for name in re.findall(r'environ\["(\w+)"\]', code))
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    own = [it for it in calls if isinstance(it.func, ast.Attribute) and ast.unparse(it.func.value) == "sg"]
    assert {ast.unparse(it.func) for it in own} >= {"sg.register", "sg.exactly_once", "sg.supervise"}
    for call in own:
        function = getattr(sg, call.func.attr)  # type: ignore[attr-defined]
        inspect.signature(function).bind(*call.args, **{str(it.arg): it.value for it in call.keywords})
