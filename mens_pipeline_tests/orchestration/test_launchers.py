"""The RayJob for KubeRay: its fields exist in the CRD, and a server that replies like Kubernetes accepts it."""

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
import yaml

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.jobs.protocol import FAILURE, LOG, ExitCode
from mens_pipeline.orchestration.launchers import read_ray_job, run_on_ray
from mens_pipeline.settings import KUBERAY, PROJECT_ROOT, Settings

_KNOWN: Final[dict[str, set[str]]] = {
    "spec": {
        *("activeDeadlineSeconds", "backoffLimit", "clusterSelector", "deletionStrategy", "entrypoint", "jobId"),
        *("entrypointNumCpus", "entrypointNumGpus", "entrypointResources", "managedBy", "metadata", "rayClusterSpec"),
        *("preRunningDeadlineSeconds", "runtimeEnvYAML", "shutdownAfterJobFinishes", "submissionMode", "suspend"),
        *("submitterConfig", "submitterPodTemplate", "ttlSecondsAfterFinished"),
    },
    "cluster": {
        *("authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions", "headGroupSpec"),
        *("headServiceAnnotations", "managedBy", "rayVersion", "suspend", "upgradeStrategy", "workerGroupSpecs"),
    },
    "auth": {"enableK8sTokenAuth", "mode", "secretName"},
    "head": {"enableIngress", "headService", "labels", "rayStartParams", "resources", "serviceType", "template"},
    "workers": {
        *("groupName", "idleTimeoutSeconds", "labels", "maxReplicas", "minReplicas", "numOfHosts", "priority"),
        *("rayStartParams", "replicas", "resources", "scaleStrategy", "suspend", "template"),
    },
}
"""Fields of ray.io/v1 RayJob in KubeRay 1.6, from its definition: Kubernetes silently ignores others."""

_SHARED: Final = "/dev/shm"  # noqa: S108 - of containers


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """The RayJob that comes with the code, with its placeholder replaced."""
    path = tmp_path / "kuberay.yaml"
    path.write_text(KUBERAY.read_text(encoding="utf-8").replace("NAMESPACE", "mens"), encoding="utf-8")
    return path


def _containers(ray_job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = ray_job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def test_fields_of_the_ray_job_are_those_of_its_definition(template: Path) -> None:
    ray_job = read_ray_job(template, 4, "image", is_cuda=True)
    cluster = ray_job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    found = {
        "spec": ray_job["spec"],
        "cluster": cluster,
        "auth": cluster["authOptions"],
        "head": cluster["headGroupSpec"],
        "workers": workers,
    }

    assert (ray_job["apiVersion"], ray_job["kind"]) == ("ray.io/v1", "RayJob")
    assert {level: set(fields) - _KNOWN[level] for level, fields in found.items()} == {level: set() for level in _KNOWN}
    assert {"groupName", "minReplicas", "maxReplicas", "template"} <= workers.keys()
    assert all(
        isinstance(value, str)
        for group in (cluster["headGroupSpec"], workers)
        for value in group["rayStartParams"].values()
    )
    constraints = (PROJECT_ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert f"ray=={cluster['rayVersion']}\n" in constraints


@pytest.mark.parametrize("is_cuda", [True, False])
def test_each_device_is_a_worker_with_one_gpu(template: Path, *, is_cuda: bool) -> None:
    content = yaml.safe_load(template.read_text(encoding="utf-8"))
    _containers(content)[0] |= {"image": "mine:2"}
    _containers(content)[1]["resources"] = _containers(content)[0]["resources"]  # one object, as an anchor makes it
    template.write_text(yaml.safe_dump(content), encoding="utf-8")
    ray_job = read_ray_job(template, 3, "registry/mens:1", is_cuda=is_cuda)
    head, worker = _containers(ray_job)
    (workers,) = ray_job["spec"]["rayClusterSpec"]["workerGroupSpecs"]

    assert [workers[name] for name in ("replicas", "minReplicas", "maxReplicas")] == [3, 3, 3]
    assert [each["image"] for each in (head, worker)] == ["mine:2", "registry/mens:1"]
    assert worker["resources"]["limits"].get("nvidia.com/gpu") == ("1" if is_cuda else None)
    assert "nvidia.com/gpu" not in head["resources"]["limits"]


def test_all_nodes_see_the_folders_of_a_run(template: Path) -> None:
    values = yaml.safe_load((PROJECT_ROOT / "config" / "deploy" / "helm" / "values.yaml").read_text(encoding="utf-8"))
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    settings = Settings.model_validate({entry["name"]: entry["value"] for entry in deployment["env"]})
    claims = {volume["name"]: volume.get("persistentVolumeClaim") for volume in deployment["volumes"]}
    ray_job = read_ray_job(template, 1, "image", is_cuda=True)
    for container in _containers(ray_job):
        places = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert places == {str(settings.store_root): "store", str(settings.cache_root): "cache", _SHARED: "shm"}
    cluster = ray_job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        volumes = {volume["name"]: volume for volume in group["template"]["spec"]["volumes"]}
        assert {name: volumes[name]["persistentVolumeClaim"] for name in ("store", "cache")}.items() <= claims.items()
        assert volumes["shm"]["emptyDir"]["medium"] == "Memory"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("namespace: mens", "namespace: NAMESPACE", "metadata.namespace is the placeholder NAMESPACE. Set the runs'"),
        ("headGroupSpec:", "head:", r"one group of workers \(KeyError\('headGroupSpec'\)\). Correct the file"),
        ("workerGroupSpecs:", "workers:", "expected a RayJob with metadata.namespace, a head and one group"),
        ("kind: RayJob", "kind: RayJob", "no image, and the run has no tag dagster/image"),
    ],
)
def test_an_invalid_ray_job_is_refused_before_anything_starts(template: Path, old: str, new: str, message: str) -> None:
    template.write_text(template.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    image = None if old == new else "image"

    with pytest.raises(ConfigurationError, match=rf"kuberay\.yaml: .*{message}"):
        read_ray_job(template, 1, image, is_cuda=False)


@contextmanager
def _kubernetes(folder: Path) -> Iterator[list[tuple[str, Any]]]:
    asked: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self._answer(asked[-1][1])

        def do_GET(self) -> None:
            status = {"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": "no quota"}
            self._answer({**asked[0][1], "status": status})

        def _answer(self, body: Any) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    names = {"clusters": "cluster", "users": "user"}
    config: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "it"}
    config |= {plural: [{"name": "it", one: {}}] for plural, one in names.items()}
    config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{server.server_port}"}
    config["contexts"] = [{"name": "it", "context": {"cluster": "it", "user": "it"}}]
    (folder / "kubeconfig").write_text(yaml.safe_dump(config), encoding="utf-8")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes") is None, reason="kubernetes, of the extra cluster, is missing"
)
@pytest.mark.filterwarnings("ignore:AssetExecutionContext.dagster_run is deprecated", "ignore::ResourceWarning")
def test_training_is_submitted_to_kubernetes(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kubernetes.config.kube_config as client_config  # noqa: PLC0415 - of an extra

    monkeypatch.setattr(client_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    ray_job = read_ray_job(template, 2, "registry/mens:1", is_cuda=True)
    codes = []
    (tmp_path / FAILURE).write_text('{"reason": "of a run before"}', encoding="utf-8")

    @dg.asset
    def train(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        codes.append(run_on_ray(context, tmp_path / "job.json", lambda _event: None, ray_job))
        return dg.MaterializeResult()

    with _kubernetes(tmp_path) as asked, dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([train], instance=instance)
    ((path, body),) = asked

    assert path == "/apis/ray.io/v1/namespaces/mens/rayjobs"
    assert body["spec"]["entrypoint"] == f"python -P -m mens_pipeline.jobs {tmp_path / 'job.json'} --ray"
    assert body["spec"]["rayClusterSpec"] == ray_job["spec"]["rayClusterSpec"]
    assert set(body["spec"]) <= _KNOWN["spec"]
    assert "DAGSTER_PIPES_CONTEXT" in body["spec"]["runtimeEnvYAML"]
    assert codes == [ExitCode.CRASHED]
    assert "no quota" in (tmp_path / LOG).read_text(encoding="utf-8")
