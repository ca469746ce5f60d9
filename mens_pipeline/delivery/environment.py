"""A benchmark as an environment for other frameworks: prompts, hidden tests, and a scorer that calls `mens`."""

import json
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.evaluation.benchmark import MANIFEST, Benchmark
from mens_pipeline.storage.documents import draft_folder
from mens_pipeline.storage.jsonl import write_lines, write_text

_HOW: Final = {
    "inspect": (
        "pip install inspect-ai openai",
        "NAME_BASE_URL=URL NAME_API_KEY=KEY inspect eval vox_tasks.py --model openai-api/name/MODEL",
    ),
    "verifiers": (
        "pip install verifiers uv",
        (
            "PYTHONPATH=. vf-eval vox-tasks --env.agent.harness.id null --env.agent.runtime.type subprocess --no-push"
            " -m MODEL --client.base-url URL --client.api-key-var KEY_VARIABLE"
        ),
    ),
}
"""Framework -> commands that install it, and run it in the folder."""


def write_environment(benchmark: Benchmark, framework: str, folder: Path) -> None:
    """Write a benchmark as an environment into a new folder; `ConfigurationError` if it exists or cannot be created."""
    if folder.exists():
        raise ConfigurationError(f"{folder}: already exists. Name a new folder.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(folder.absolute()) as draft:
            _fill(draft, benchmark, framework)
            draft.rename(folder)
    except OSError as error:
        raise ConfigurationError(f"{folder}: {error.strerror}. Name a folder that can be created.") from error


def _fill(draft: Path, benchmark: Benchmark, framework: str) -> None:
    specs = [task.spec for task in benchmark.tasks]
    rows = ({"id": s.id, "system": SYSTEM_PROMPT, "prompt": s.description, "tests": s.tests} for s in specs)
    write_lines(draft / "prompts.jsonl", (json.dumps(row, ensure_ascii=False) for row in rows))
    for name in sorted({MANIFEST, *(name for spec in specs for name in spec.files())}):
        target = draft / "benchmark" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(benchmark.folder / name, target)
    templates = files(__package__) / "environments"
    for template, name in ((f"{framework}.py.txt", "vox_tasks.py"), ("judge.py.txt", "vox_judge.py")):
        write_text(draft / name, (templates / template).read_text(encoding="utf-8"))
    write_text(draft / "README.md", _format_readme(benchmark, framework))


def _format_readme(benchmark: Benchmark, framework: str) -> str:
    install, run = _HOW[framework]
    return f"""# Tasks in Vox, for {framework}

{len(benchmark.tasks)} tasks for evaluating models of Vox. Nothing here may train a model.

```console
$ python -m venv elsewhere && elsewhere/bin/pip install mens-pipeline
$ export VOX_JUDGE=$PWD/elsewhere/bin/mens
$ {install}
$ {run}
```

- `prompts.jsonl`: each prompt with its system prompt, and the name of its hidden tests below `benchmark`.
- `benchmark`: the manifest with required declarations, hidden tests, solutions; SHA-256 `{benchmark.digest}`.
- `vox_tasks.py`: the tasks for {framework}. `vox_judge.py` calls `mens score`, which checks a completion and runs its
  hidden tests in a sandbox, as `mens eval-local` does. `VOX_JUDGE` is the command, by default `mens` on the path.
- Figures are 1 or 0 for each completion: `passed` is pass@1; `parses` and `resolves` are as in `mens eval-local`.
"""
