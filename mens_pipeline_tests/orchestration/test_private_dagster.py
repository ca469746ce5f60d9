"""Private names of Dagster that the package imports because nothing public replaces them."""

import ast
from importlib import import_module
from pathlib import Path

from mens_pipeline.settings import PROJECT_ROOT

_NAMES = {
    "dagster._cli": {"dev"},
    "dagster._core.definitions.decorators.op_decorator": {"DecoratedOpFunction"},
    "dagster._core.definitions.repository_definition": {"SINGLETON_REPOSITORY_NAME"},
    "dagster._core.events": {"RunFailureReason"},
    "dagster._core.remote_origin": {
        "ManagedGrpcPythonEnvCodeLocationOrigin",
        "RemoteJobOrigin",
        "RemoteRepositoryOrigin",
    },
    "dagster._core.storage.tags": {"CODE_LOCATION_TAG", "MAX_RETRIES_TAG", "REPOSITORY_LABEL_TAG"},
    "dagster._core.types.loadable_target_origin": {"LoadableTargetOrigin"},
    "dagster._utils.schedules": {
        "get_latest_completed_cron_tick",
        "get_smallest_cron_interval",
        "is_valid_cron_string",
    },
    "dagster._utils.interrupts": {"capture_interrupts"},
    "dagster_shared.error": {"SerializableErrorInfo"},
    "dagster_shared.ipc": {"open_ipc_subprocess"},
    "dagster_shared.utils.warnings": {"disable_dagster_warnings"},
}


def _find_private(path: Path) -> dict[str, set[str]]:
    imports = [
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
    ]
    modules = {node.module: {alias.name for alias in node.names} for node in imports if node.module}
    return {name: names for name, names in modules.items() if name.startswith(("dagster._", "dagster_shared"))}


def test_private_names_are_listed_and_exist() -> None:
    """A release of Dagster that moves one fails here, and so does a new private import."""
    found: dict[str, set[str]] = {}
    for path in (PROJECT_ROOT / "mens_pipeline").rglob("*.py"):
        for module, names in _find_private(path).items():
            found[module] = found.get(module, set()) | names

    assert found == _NAMES
    missing = [f"{m}.{name}" for m, names in found.items() for name in names if not hasattr(import_module(m), name)]
    assert missing == []
