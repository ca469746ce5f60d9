"""Files for Docker, helm and GitHub Actions, checked as far as possible without them."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml

from mens_pipeline.cli.main import app
from mens_pipeline.definitions import defs
from mens_pipeline.delivery.retention import RetentionPolicy
from mens_pipeline.settings import PROJECT_ROOT, RETENTION, Settings
from mens_pipeline.storage.yaml_file import load_model

_DEPLOY: Final = PROJECT_ROOT / "config" / "deploy"
_OF_THE_CHART: Final = frozenset(
    (
        *("global", "generatePostgresqlPasswordSecret", "postgresql", "dagster-user-deployments", "runLauncher"),
        *("dagsterDaemon", "additionalInstanceConfig", "telemetry"),
    )
)
"""Keys of the chart that we use, written by hand from its documentation: helm itself is not installed."""

_OF_A_DEPLOYMENT: Final = frozenset(
    (
        *("name", "image", "dagsterApiGrpcArgs", "port", "includeConfigInLaunchedRuns", "env", "envSecrets", "volumes"),
        *("volumeMounts", "securityContext"),
    )
)


_SHARED: Final = "/dev/shm"  # noqa: S108 - of containers


def _read_values() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((_DEPLOY / "helm" / "values.yaml").read_text(encoding="utf-8"))
    return values


def _read_deployment() -> dict[str, Any]:
    (deployment,) = _read_values()["dagster-user-deployments"]["deployments"]
    return dict(deployment)


def test_the_values_have_only_keys_of_the_chart() -> None:
    values = _read_values()

    assert values.keys() == _OF_THE_CHART
    assert _read_deployment().keys() == _OF_A_DEPLOYMENT
    assert values["runLauncher"]["type"] == "K8sRunLauncher"
    assert set(values["runLauncher"]["config"]) == {"k8sRunLauncher"}
    assert values["global"]["postgresqlSecretName"]
    assert not values["postgresql"]["enabled"]
    assert not values["generatePostgresqlPasswordSecret"]


def test_variables_of_pods_are_ours_or_of_a_library() -> None:
    variables = {entry["name"]: entry["value"] for entry in _read_deployment()["env"]}
    fields = {str(field.validation_alias): name for name, field in Settings.model_fields.items()}
    ours = {name: value for name, value in variables.items() if name.startswith("MENS_")}
    assert ours.keys() <= fields.keys()
    assert not [name for name in variables if re.search("KEY|TOKEN|PASSWORD|SECRET", name)]
    settings = Settings.model_validate(ours)

    assert settings.store_url == "s3://BUCKET/mens"
    assert settings.launcher == "local"
    mounts = {Path(mount["mountPath"]) for mount in _read_deployment()["volumeMounts"]}
    assert {settings.store_root, settings.cache_root, settings.source_root, Path(_SHARED)} == mounts
    assert {v["name"] for v in _read_deployment()["volumes"]} == {m["name"] for m in _read_deployment()["volumeMounts"]}


@pytest.mark.skipif(
    importlib.util.find_spec("dagster_k8s") is None, reason="dagster-k8s, of the extra cluster, is missing"
)
def test_a_step_gets_a_gpu_if_it_uses_one() -> None:
    from dagster_k8s import k8s_job_executor  # noqa: PLC0415 - of an extra
    from dagster_k8s.job import DagsterK8sJobConfig, construct_dagster_k8s_job, get_user_defined_k8s_config  # noqa: PLC0415

    executor = next(entry["value"] for entry in _read_deployment()["env"] if entry["name"] == "MENS_EXECUTOR")
    launcher = _read_values()["runLauncher"]["config"]["k8sRunLauncher"]
    limits: dict[str, dict[str, str] | None] = {}
    for node in (node for job in defs().resolve_all_job_defs() for node in job.nodes):
        asked = get_user_defined_k8s_config(node.tags)
        config = DagsterK8sJobConfig(job_image="image", dagster_home="/home")
        pod = construct_dagster_k8s_job(config, ["dagster"], "step", asked).spec.template.spec
        resources = pod.containers[0].resources
        limits[node.name] = resources.limits if resources is not None else None

    assert executor == f"dagster_k8s:{k8s_job_executor.name}_job_executor"
    assert "limits" not in launcher["resources"]
    assert {name for name, asked in limits.items() if asked == {"nvidia.com/gpu": "1"}} == {
        *("qlora_adapter", "eval_results"),
        *("scratch_model", "merged_model"),
    }
    without_gpu = {name for name, asked in limits.items() if asked is None}
    assert without_gpu >= {"extracted_corpus", "mixed_train_set", "store_retention"}


def test_the_shared_volume_of_processes_is_in_memory() -> None:
    """NCCL needs more than the 64 MiB that a container has by default."""
    (volume,) = [volume for volume in _read_deployment()["volumes"] if volume["name"] == "shm"]

    assert {"name": "shm", "mountPath": _SHARED} in _read_deployment()["volumeMounts"]
    assert volume["emptyDir"]["medium"] == "Memory"


def test_monitoring_and_retries_equal_those_of_one_machine() -> None:
    ours = yaml.safe_load((PROJECT_ROOT / "config" / "dagster-postgres.yaml").read_text(encoding="utf-8"))
    daemon = _read_values()["dagsterDaemon"]
    monitoring = {
        _to_snake_case(name): value for name, value in daemon["runMonitoring"].items() if name != "startTimeoutSeconds"
    }

    assert monitoring.items() <= ours["run_monitoring"].items()
    assert {_to_snake_case(name): value for name, value in daemon["runRetries"].items()} == ours["run_retries"]
    assert _read_values()["additionalInstanceConfig"]["concurrency"]["pools"] == ours["concurrency"]["pools"]
    coordinator = daemon["runCoordinator"]["config"]["queuedRunCoordinator"]
    assert coordinator["maxConcurrentRuns"] == ours["concurrency"]["runs"]["max_concurrent_runs"]


def _read_dockerfile() -> list[tuple[str, str]]:
    """Read the instructions of the Dockerfile, each with its words, and join continued lines."""
    text = (_DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines.splitlines() if line)]


def test_each_line_of_the_dockerfile_is_an_instruction() -> None:
    declared = {"PATH"}
    for word, rest in _read_dockerfile():
        assert word in {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "ENV", "USER", "CMD"}
        used = set(re.findall(r"\$\{?(\w+)", rest))
        assert used <= declared
        if word in {"ARG", "ENV"}:
            declared |= set(re.findall(r"(\w+)=", rest))
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
    words = [word for word, _ in _read_dockerfile()]
    command = yaml.safe_load(dict(_read_dockerfile())["CMD"])

    assert words[0] == "FROM"
    assert words.index("USER") < words.index("CMD") == len(words) - 1
    assert dict(_read_dockerfile())["USER"] != "root"
    assert Path(sys.executable).with_name(command[0]).is_file()
    assert importlib.util.find_spec(command[command.index("--module-name") + 1]) is not None


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling, of the extra dev, is missing")
def test_the_image_copies_enough_files_to_install(tmp_path: Path) -> None:
    for names in (rest.split() for word, rest in _read_dockerfile() if word == "COPY"):
        for name in names[:-1]:
            source, target = PROJECT_ROOT / name, tmp_path / "mens" / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(exist_ok=True)
                shutil.copy2(source, target)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation")
    contents = []
    for place, name in ((tmp_path / "mens", "image"), (PROJECT_ROOT, "checkout")):
        subprocess.run([*pip, "-w", str(tmp_path / name), str(place)], cwd=tmp_path, check=True, capture_output=True)
        (wheel,) = (tmp_path / name).glob("*.whl")
        contents.append(sorted(zipfile.ZipFile(wheel).namelist()))

    assert contents[0] == contents[1]


@pytest.mark.slow
@pytest.mark.e2e
def test_the_image_is_built_and_runs(tmp_path: Path) -> None:
    engines = [name for name in ("docker", "podman", "buildah") if shutil.which(name) is not None]
    infos = (subprocess.run([name, "info"], capture_output=True, check=False) for name in engines)
    if (engine := next((info.args[0] for info in infos if info.returncode == 0), None)) is None:
        pytest.skip("there is no engine here that builds images")
    if (options := os.environ.get("MENS_TEST_IMAGE")) is None:
        pytest.skip("MENS_TEST_IMAGE does not name an index of torch for CPUs: --build-arg=TORCH_INDEX=URL")
    commit = "0123456789abcdef" * 2 + "01234567"
    about = [f"--build-arg=COMMIT={commit}", *options.split(), "--tag", "mens-pipeline:test"]
    subprocess.run([engine, "build", "-f", str(_DEPLOY / "Dockerfile"), *about, str(PROJECT_ROOT)], check=True)
    run, tidy = [engine, "run", "--rm", "--network", "none", "mens-pipeline:test"], ["true"]
    if engine == "buildah":
        made = subprocess.run([engine, "from", "mens-pipeline:test"], capture_output=True, text=True, check=True)
        run = ["unshare", "--net", engine, "run", made.stdout.strip(), "--"]
        tidy = [engine, "rm", made.stdout.strip()]
    script = "id -u; mens --version; mens check data/golden; cd /tmp; python -m mens_pipeline.cli run --no-train"
    done = subprocess.run([*run, "sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    subprocess.run(tidy, check=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("1000\n")
    assert "(commit 0123456789ab)" in done.stdout
    assert "accepted 309/309" in done.stderr
    assert "distinct pairs" in done.stdout


def test_no_output_of_runs_goes_into_the_image() -> None:
    """Files that git ignores, such as the store below data/, would be copied into the image otherwise."""
    ignored = (PROJECT_ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    kept_out = (PROJECT_ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()

    assert {line.strip("/") for line in ignored if line.startswith("/data/")} <= set(kept_out)


def test_the_image_copies_existing_files_and_installs_pinned_packages() -> None:
    text = (_DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for name in line.split()]
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall("^ARG EXTRAS=(.+)$", text, re.MULTILINE)
    (torch,) = re.findall("torch==([0-9.]+)", text)

    assert [name for name in copied if not (PROJECT_ROOT / name).exists()] == []
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert f"torch=={torch}" in (PROJECT_ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert str(_read_deployment()["port"]) in text


def test_the_nightly_workflow_has_valid_actions_and_commands() -> None:
    text = (PROJECT_ROOT / "docs" / "nightly.yml").read_text(encoding="utf-8")
    ours = (PROJECT_ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    (job,) = workflow["jobs"].values()
    (schedule,) = workflow[True]["schedule"]  # YAML 1.1 reads the key `on` as true
    used, known = (dict(re.findall(r"uses: (\S+)@(v\d+)$", of, re.MULTILINE)) for of in (text, ours))
    commands = [step["run"] for step in job["steps"] if "run" in step]
    aliases = {str(field.validation_alias) for field in Settings.model_fields.values()}

    assert len(schedule["cron"].split()) == 5
    assert workflow["permissions"] == {"contents": "read"}
    assert all(used[name] == version for name, version in known.items())
    assert sum("uses" in step for step in job["steps"]) == text.count("uses: ")
    assert all(re.search(r"@v\d+$", step["uses"]) for step in job["steps"] if "uses" in step)
    assert job["env"].keys() <= aliases
    assert "secrets." not in text
    assert any(command.startswith("pip install --constraint pipeline/constraints.txt") for command in commands)
    root = typer.main.get_command(app)
    asked = [shlex.split(command.partition(">>")[0])[1:] for command in commands if command.startswith("mens ")]
    for words in asked:
        command, name, rest = root, "mens", list(words)
        while isinstance(command, typer.core.TyperGroup):
            name = rest.pop(0)
            command = command.commands[name]
        command.make_parser(typer.Context(command, info_name=name)).parse_args(rest)
    assert len(asked) == 5


@pytest.mark.seed_row(34, 44, 45, 70, 71, 72, 73)
def test_the_nightly_workflow_has_the_names_of_upstreams_plan() -> None:
    workflow = yaml.safe_load((PROJECT_ROOT / "docs" / "nightly.yml").read_text(encoding="utf-8"))
    begins, (job,) = workflow[True], workflow["jobs"].values()
    uploads = [step for step in job["steps"] if step.get("uses", "").startswith("actions/upload-artifact@")]
    days = {step["with"]["name"]: step["with"]["retention-days"] for step in uploads}
    inputs = {name: given.get("default") for name, given in begins["workflow_dispatch"]["inputs"].items()}
    kept = load_model(RETENTION, RetentionPolicy).days
    verdict = "\n".join(step["with"]["path"] for step in uploads)

    assert job["env"]["VCS_SHA"] == "${{ github.sha }}"
    assert days == {"lora-adapter-${{ env.VCS_SHA }}": 90, "eval-gate-${{ env.VCS_SHA }}": 30}
    assert [*days.values()] == [kept.qlora_adapter, kept.eval_results]
    assert all(name in verdict for name in ("eval_results.json", "eval_gate_failed.json", "qlora_adapter"))
    assert begins["schedule"] == [{"cron": "0 4 * * *"}]
    assert {"**/*.vox", "crates/vox-compiler/**", "docs/src/**"} <= {*begins["push"]["paths"]}
    assert (inputs["force_train"], inputs["native_train"], inputs["strict_quality_gate"]) == (False, True, False)
    assert [step["if"] for step in job["steps"] if step.get("run", "").startswith("mens run")] == [
        "${{ !inputs.force_train }}",
        "${{ inputs.force_train }}",
    ]


def _to_snake_case(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()
