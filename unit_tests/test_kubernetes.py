"""The manifests of docs/deploy.rst refer to objects that exist, and the program in them calls the library correctly."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

import streamgroups as sg
from unit_tests.documents import ROOT

MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "docker" / "kubernetes" / "streamgroups.yaml").read_text(encoding="utf-8"))
)
(DEPLOYMENT,) = (it["spec"] for it in MANIFESTS if it["kind"] == "Deployment")
POD = DEPLOYMENT["template"]["spec"]
(DRIVER,) = POD["containers"]


def only(kind: str) -> dict[str, Any]:
    (found,) = (it for it in MANIFESTS if it["kind"] == kind)
    return found


@pytest.mark.parametrize("release", ["1.30", "1.37"])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda it: it["kind"])
def test_a_manifest_has_the_schema_of_kubernetes(manifest: dict[str, Any], release: str) -> None:
    kubernetes_validate.validate(manifest, release, strict=True)


def test_references_between_manifests() -> None:
    account, role, binding = only("ServiceAccount"), only("Role"), only("RoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [it["name"] for it in binding["subjects"]] == [account["metadata"]["name"]]
    assert POD["serviceAccountName"] == account["metadata"]["name"]
    labels = DEPLOYMENT["template"]["metadata"]["labels"]
    assert only("Service")["spec"]["selector"] == DEPLOYMENT["selector"]["matchLabels"] == labels
    assert {it["name"] for it in DRIVER["volumeMounts"]} == {it["name"] for it in POD["volumes"]}


def test_settings_of_spark_agree_with_the_manifests() -> None:
    (command,) = DRIVER["args"]
    words = command.split()
    used = re.findall(r'"\$(\w+)"', command)
    assert used == ["NAMESPACE", "POD"]
    assert set(used) <= {it["name"] for it in DRIVER["env"]}
    settings = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--conf")
    service = only("Service")
    assert settings["spark.driver.host"] == service["metadata"]["name"]
    ports = {it["name"]: str(it["port"]) for it in service["spec"]["ports"]}
    assert ports == {"driver": settings["spark.driver.port"], "blocks": settings["spark.driver.blockManager.port"]}
    assert settings["spark.kubernetes.container.image"] == DRIVER["image"]
    account = settings["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert account == POD["serviceAccountName"]
    directory, _, program = words[-1].rpartition("/")
    assert directory in {it["mountPath"] for it in DRIVER["volumeMounts"]}
    assert program in only("ConfigMap")["data"]


def test_checkpoints_are_where_the_image_has_them() -> None:
    dockerfile = (ROOT / "docker" / "spark" / "Dockerfile").read_text(encoding="utf-8")
    (directory,) = (it["mountPath"] for it in DRIVER["volumeMounts"] if it["name"] == "checkpoints")
    assert f"--owner=spark {directory}\n" in dockerfile
    (program,) = only("ConfigMap")["data"].values()
    assert f'checkpoint="{directory}/' in program


def test_one_driver_uses_a_checkpoint_and_has_time_to_leave_its_group() -> None:
    assert (DEPLOYMENT["replicas"], DEPLOYMENT["strategy"]) == (1, {"type": "Recreate"})
    assert POD["terminationGracePeriodSeconds"] >= 30
    assert DRIVER["args"][0].startswith("exec "), "a shell would not pass SIGTERM on"


def test_the_program_calls_the_library_with_valid_arguments() -> None:
    (code,) = only("ConfigMap")["data"].values()
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    ours = [it for it in calls if isinstance(it.func, ast.Attribute) and ast.unparse(it.func.value) == "sg"]
    assert {ast.unparse(it.func) for it in ours} == {"sg.register", "sg.KafkaSink", "sg.exactly_once", "sg.supervise"}
    for call in ours:
        function = getattr(sg, call.func.attr)  # type: ignore[attr-defined]
        inspect.signature(function).bind(*call.args, **{str(it.arg): it.value for it in call.keywords})
