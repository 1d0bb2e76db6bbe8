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

MANIFEST = ROOT / "docker" / "kubernetes" / "streamgroups.yaml"
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
(DEPLOYMENT,) = (it["spec"] for it in MANIFESTS if it["kind"] == "Deployment")
POD = DEPLOYMENT["template"]["spec"]
(DRIVER,) = POD["containers"]


def only(kind: str) -> dict[str, Any]:
    (found,) = (it for it in MANIFESTS if it["kind"] == kind)
    return found


WORDS = DRIVER["args"][0].split()
SETTINGS = dict(WORDS[i + 1].split("=", 1) for i, word in enumerate(WORDS) if word == "--conf")
LABEL = "spark.kubernetes.executor.label."
EXECUTOR_LABELS = {name.removeprefix(LABEL): it for name, it in SETTINGS.items() if name.startswith(LABEL)}
EXECUTOR = yaml.safe_load(only("ConfigMap")["data"]["executor.yaml"])
_MOUNTED = {it["name"]: it["mountPath"] for it in DRIVER["volumeMounts"]}
#: The volumes of the driver, by the directory where they are mounted.
VOLUMES = {_MOUNTED[it["name"]]: {name: of for name, of in it.items() if name != "name"} for it in POD["volumes"]}


@pytest.mark.parametrize("release", ["1.30", "1.37"])
@pytest.mark.parametrize(
    "manifest", [*MANIFESTS, {**EXECUTOR, "metadata": {"name": "executor"}}], ids=lambda it: it["kind"]
)
def test_a_manifest_has_the_schema_of_kubernetes(manifest: dict[str, Any], release: str) -> None:
    kubernetes_validate.validate(manifest, release, strict=True)


def test_references_between_manifests() -> None:
    account, role, binding = only("ServiceAccount"), only("Role"), only("RoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [it["name"] for it in binding["subjects"]] == [account["metadata"]["name"]]
    assert POD["serviceAccountName"] == account["metadata"]["name"]
    labels = DEPLOYMENT["template"]["metadata"]["labels"]
    assert only("Service")["spec"]["selector"] == DEPLOYMENT["selector"]["matchLabels"]
    assert DEPLOYMENT["selector"]["matchLabels"].items() <= labels.items()
    assert not DEPLOYMENT["selector"]["matchLabels"].items() <= EXECUTOR_LABELS.items(), (
        "the Service is that of the driver"
    )
    assert {it["name"] for it in DRIVER["volumeMounts"]} == {it["name"] for it in POD["volumes"]}


def test_settings_of_spark_agree_with_the_manifests() -> None:
    (command,) = DRIVER["args"]
    words = command.split()
    used = re.findall(r'"\$(\w+)"', command)
    assert used == ["NAMESPACE", "POD"]
    assert set(used) <= {it["name"] for it in DRIVER["env"]}
    settings = SETTINGS
    service = only("Service")
    assert settings["spark.driver.host"] == service["metadata"]["name"]
    ports = {it["name"]: str(it["port"]) for it in service["spec"]["ports"]}
    assert ports == {"driver": settings["spark.driver.port"], "blocks": settings["spark.driver.blockManager.port"]}
    assert settings["spark.kubernetes.container.image"] == DRIVER["image"]
    account = settings["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert account == POD["serviceAccountName"]
    for path in (words[-1], settings["spark.kubernetes.executor.podTemplateFile"]):
        directory, _, file = path.rpartition("/")
        assert VOLUMES[directory] == {"configMap": {"name": only("ConfigMap")["metadata"]["name"]}}
        assert file in only("ConfigMap")["data"]


def test_driver_and_executors_authenticate_with_a_secret() -> None:
    assert SETTINGS["spark.authenticate"] == SETTINGS["spark.network.crypto.enabled"] == "true"
    directory, _, key = SETTINGS["spark.authenticate.secret.file"].rpartition("/")
    name = VOLUMES[directory]["secret"]["secretName"]
    assert {f"spark.kubernetes.executor.secrets.{name}": directory}.items() <= SETTINGS.items()
    assert "spark.authenticate.secret" not in SETTINGS, "the command line of a process is no secret"
    assert not [it for it in MANIFESTS if it["kind"] == "Secret"], "the file is public"
    command = f"kubectl create secret generic {name} --from-literal={key}="
    assert all(command in path.read_text(encoding="utf-8") for path in (MANIFEST, ROOT / "docs" / "deploy.rst"))


def test_only_pods_of_the_query_reach_its_pods() -> None:
    policy = only("NetworkPolicy")["spec"]
    own = policy["podSelector"]
    assert policy == {"podSelector": own, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": own}]}]}
    for labels in (DEPLOYMENT["template"]["metadata"]["labels"], EXECUTOR_LABELS):
        assert own["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("pod", [POD, EXECUTOR["spec"]], ids=["driver", "executor"])
def test_no_pod_runs_as_root(pod: dict[str, Any]) -> None:
    """The restricted standard of Kubernetes. A user without a number in the image cannot be checked."""
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["fsGroup"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_rights_have_no_wildcard_and_executors_have_none() -> None:
    assert {it["kind"] for it in MANIFESTS} >= {"Role", "RoleBinding"}
    assert not {it["kind"] for it in MANIFESTS} & {"ClusterRole", "ClusterRoleBinding"}
    for rule in only("Role")["rules"]:
        assert rule["apiGroups"] == [""]
        assert "*" not in rule["resources"] + rule["verbs"]
        assert not set(rule["resources"]) & {"secrets", "serviceaccounts", "pods/exec"}
    assert EXECUTOR["spec"]["automountServiceAccountToken"] is False


def test_checkpoints_are_where_the_image_has_them() -> None:
    dockerfile = (ROOT / "docker" / "spark" / "Dockerfile").read_text(encoding="utf-8")
    (directory,) = (it["mountPath"] for it in DRIVER["volumeMounts"] if it["name"] == "checkpoints")
    assert f"--owner=spark {directory}\n" in dockerfile
    program = only("ConfigMap")["data"]["flights.py"]
    assert f'checkpoint="{directory}/' in program


def test_one_driver_uses_a_checkpoint_and_has_time_to_leave_its_group() -> None:
    assert (DEPLOYMENT["replicas"], DEPLOYMENT["strategy"]) == (1, {"type": "Recreate"})
    assert POD["terminationGracePeriodSeconds"] >= 30
    assert DRIVER["args"][0].startswith("exec "), "a shell would not pass SIGTERM on"


def test_the_program_calls_the_library_with_valid_arguments() -> None:
    code = only("ConfigMap")["data"]["flights.py"]
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    own = [it for it in calls if isinstance(it.func, ast.Attribute) and ast.unparse(it.func.value) == "sg"]
    assert {ast.unparse(it.func) for it in own} == {"sg.register", "sg.KafkaSink", "sg.exactly_once", "sg.supervise"}
    for call in own:
        function = getattr(sg, call.func.attr)  # type: ignore[attr-defined]
        inspect.signature(function).bind(*call.args, **{str(it.arg): it.value for it in call.keywords})
