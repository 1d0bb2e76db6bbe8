"""An API server of Kubernetes accepts the manifests of docs/deploy.rst, and the driver's account may do what Spark needs.

Needs ``etcd``, ``kube-apiserver`` and ``kubectl`` on ``PATH`` or in the directory ``KUBEBUILDER_ASSETS``, as
``setup-envtest`` installs them; skipped without them. No kubelet runs, so executors stay pending.
``unit_tests/test_kubernetes.py`` compares the manifests with schemas. Source: Spark's "Running Spark on Kubernetes".
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration_tests.programs import running_command
from integration_tests.tiers import LONG
from streamgroups_broker._ports import free_ports
from streamgroups_testkit.spark_sessions import JVM
from streamgroups_testkit.waits import wait_until
from unit_tests.documents import ROOT
from unit_tests.requirements import without

pytestmark = LONG
MANIFESTS = ROOT / "docker" / "kubernetes" / "streamgroups.yaml"
MANIFEST_LIST: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8")))
ACCOUNT = "system:serviceaccount:default:flights"
#: Creates executors and stops when the file exists that is its argument.
PROGRAM = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
spark.stop()
"""


def command(name: str) -> str:
    """The path of a command; skips the tests without it."""
    path = os.pathsep.join([os.environ.get("KUBEBUILDER_ASSETS", ""), os.environ["PATH"]])
    found = shutil.which(name, path=path)
    if found is None:
        without("kubernetes", f"There is no command {name} on PATH or in KUBEBUILDER_ASSETS.")
    return str(found)


@dataclass(frozen=True)
class ApiServer:
    """A running API server.

    Args:
        url: its URL.
        directory: the directory with its certificate.
    """

    url: str
    directory: Path

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """The output of ``kubectl`` as administrator."""
        login = ("--server", self.url, "--token", "administrator", "--insecure-skip-tls-verify")
        # Without a configuration of the user, which could name another cluster.
        env = {**os.environ, "KUBECONFIG": os.devnull}
        line = [command("kubectl"), *login, *arguments]
        result = subprocess.run(line, capture_output=True, text=True, check=False, input=stdin, env=env)
        assert result.returncode == 0 or not check, result.stderr
        return result.stdout

    def executors(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self.kubectl("get", "pods", "--selector", "spark-role=executor", "--output", "json")
        )["items"]
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server without the objects of the manifests."""
    etcd, api, _ = (command(name) for name in ("etcd", "kube-apiserver", "kubectl"))
    directory = tmp_path_factory.mktemp("kubernetes")
    clients, peers, port = free_ports(3)
    stored = f"http://127.0.0.1:{clients}"
    key = directory / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    (directory / "tokens").write_text("administrator,administrator,1,system:masters\n")
    storage = ["--data-dir", str(directory / "etcd"), "--listen-client-urls", stored, "--advertise-client-urls", stored]
    storage += ["--listen-peer-urls", f"http://127.0.0.1:{peers}"]
    settings = {
        "etcd-servers": stored,
        "cert-dir": str(directory),
        "bind-address": "127.0.0.1",
        "secure-port": str(port),
        "authorization-mode": "RBAC",
        "token-auth-file": str(directory / "tokens"),
        "service-account-key-file": str(key),
        "service-account-signing-key-file": str(key),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-cluster-ip-range": "10.0.0.0/24",
    }
    server = ApiServer(f"https://127.0.0.1:{port}", directory)
    with ExitStack() as processes:
        processes.enter_context(running_command([etcd, *storage], directory / "etcd.log", os.environ))
        line = [api, *(f"--{name}={value}" for name, value in settings.items())]
        running = processes.enter_context(running_command(line, directory / "api.log", os.environ))

        def is_ready() -> bool:
            running.check()
            return server.kubectl("get", "--raw", "/readyz", check=False) == "ok"

        wait_until(is_ready, "the API server is ready", interval_s=0.5)
        yield server


@pytest.fixture(scope="module")
def applied(server: ApiServer) -> ApiServer:
    server.kubectl("apply", "--filename", str(MANIFESTS))
    return server


def test_the_manifests_can_be_applied_again(applied: ApiServer) -> None:
    again = applied.kubectl("apply", "--filename", str(MANIFESTS)).splitlines()
    assert len(again) == len(MANIFEST_LIST)
    assert all(line.endswith(" unchanged") for line in again), again


@pytest.mark.parametrize("right", ["create secrets", "get secrets", "create pods --namespace kube-system"])
def test_the_driver_has_no_other_rights(applied: ApiServer, right: str) -> None:
    assert applied.kubectl("auth", "can-i", *right.split(), "--as", ACCOUNT, check=False).strip() == "no"


def test_spark_creates_and_deletes_executors_as_the_account_of_the_manifests(
    applied: ApiServer, tmp_path: Path
) -> None:
    deployment = json.loads(applied.kubectl("get", "deployment", "flights", "--output", "json"))
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "flights-1", **template["metadata"]}}
    applied.kubectl("create", "--filename", "-", stdin=json.dumps({**pod, "spec": template["spec"]}))
    (line,) = template["spec"]["containers"][0]["args"]
    arguments = line.replace('"$NAMESPACE"', "default").replace('"$POD"', "flights-1").split()[2:-1]
    # The driver of this test runs outside of the cluster.
    secret, template_file = tmp_path / "secret", tmp_path / "executor.yaml"
    secret.write_text("00" * 32)
    template_file.write_text(next(it["data"]["executor.yaml"] for it in MANIFEST_LIST if it["kind"] == "ConfigMap"))
    own = {
        "spark.authenticate.secret.file=/secrets/rpc/secret": f"spark.authenticate.secret.file={secret}",
        "spark.kubernetes.executor.podTemplateFile=/jobs/executor.yaml": (
            f"spark.kubernetes.executor.podTemplateFile={template_file}"
        ),
        # Those of the manifest belong to a pod.
        "k8s://https://kubernetes.default.svc": f"k8s://{applied.url}",
        "spark.driver.host=flights-driver": "spark.driver.host=127.0.0.1",
        "spark.driver.port=7078": "spark.driver.port=0",
        "spark.driver.blockManager.port=7079": "spark.driver.blockManager.port=0",
        "spark.driver.bindAddress=0.0.0.0": "spark.driver.bindAddress=127.0.0.1",
    }
    assert set(own) <= set(arguments)
    token = tmp_path / "token"
    token.write_text(applied.kubectl("create", "token", "flights"))
    settings = {
        "spark.kubernetes.authenticate.oauthTokenFile": str(token),
        "spark.kubernetes.authenticate.caCertFile": str(applied.directory / "apiserver.crt"),
        "spark.driver.extraJavaOptions": JVM,
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    program, stop = tmp_path / "program.py", tmp_path / "stop"
    program.write_text(PROGRAM)
    submit = [f"{os.environ['SPARK_HOME']}/bin/spark-submit", *(own.get(it, it) for it in arguments), *options]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "KUBECONFIG": os.devnull}
    with running_command([*submit, str(program), str(stop)], tmp_path / "log", env) as running:

        def are_created() -> bool:
            running.check()
            return len(applied.executors()) == 2

        wait_until(are_created, "the driver has created two executors", interval_s=0.5)
        created = applied.executors()
        owners = [it["metadata"]["ownerReferences"][0]["name"] for it in created]
        stop.touch()
        running.wait_for_end(60)
    assert owners == ["flights-1"] * 2, "Kubernetes deletes the executors with the driver"
    for executor in created:
        assert executor["metadata"]["labels"]["query"] == "flights", "the policy selects them"
        assert executor["spec"]["securityContext"]["runAsNonRoot"]
        assert executor["spec"]["automountServiceAccountToken"] is False
        (container,) = executor["spec"]["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "/secrets/rpc" in [it["mountPath"] for it in container["volumeMounts"]]
        assert "_SPARK_AUTH_SECRET" not in [it["name"] for it in container["env"]], "who lists pods sees variables"
    wait_until(lambda: not applied.executors(), "the driver has deleted its executors", interval_s=0.5)
