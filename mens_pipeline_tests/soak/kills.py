"""kill -9 at random moments of training, graph, merge and server: the final result is the same."""

import os
import random
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import Final

import httpx2

from mens_pipeline.models.adapter import ADAPTER
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline_tests.delivery.delivered import HELDOUT, promoted_run, trained_run
from mens_pipeline_tests.soak.figures import Budget, Figure
from mens_pipeline_tests.soak.processes import Command, digests, processes_about
from mens_pipeline_tests.training.runs import FAST, pairs
from mens_pipeline_tests.training.tiny_base import write_tiny_base

_MOST_IN_A_RUN: Final = 3
_ROWS: Final = 64
_OK: Final = 200
_READY: Final = re.compile(r"ready: .* at (\S+)/v1")
_ARTIFACTS: Final = 64
"""Characters of the name of an artifact's folder."""
_DRAFT_SECONDS: Final = 120
_LIMIT: Final = re.compile(r"(^synthesize:\n(?:  .*\n)*?  limit: )\d+", re.MULTILINE)

Outcome = Mapping[str, str]


def training(budget: Budget, folder: Path) -> list[Figure]:
    base, data = write_tiny_base(folder / "base"), folder / "data"
    data.mkdir()
    write_jsonl(data / "train.jsonl", pairs(_ROWS))

    def command(place: Path) -> Command:
        options = [f"--set={name}={value}" for name, value in {**FAST, "lora_dropout": 0.1}.items()]
        where = ["--data-dir", str(data), "--output-dir", str(place / "run"), "--model", str(base), "--device", "cpu"]
        return Command(["train", "--fast-corpus", *where, *options], {"MENS_CACHE_ROOT": str(place / "cache")})

    def outcome(place: Path) -> Outcome:
        found = digests(place / "run")
        # Files with times and durations, which a kill changes by design.
        timed = ("telemetry.jsonl", "training_manifest.json", "result.json", "job.json", "README.md", "loss.svg")
        kept = {name: digest for name, digest in found.items() if not name.endswith(timed)}
        weights = {name: digest for name, digest in kept.items() if name.startswith(ADAPTER)}
        return {**dict.fromkeys(kept, ""), **weights}

    return [_compare_killed("kill -9 of `mens train`", budget, folder, command, outcome)]


def graph(budget: Budget, folder: Path) -> list[Figure]:
    workspace, config = small_workspace(folder / "workspace"), small_config(folder / "config")

    def command(place: Path) -> Command:
        (place / "dagster").mkdir(exist_ok=True)
        _age_drafts(place / "store")
        roots = {"MENS_STORE_ROOT": "store", "MENS_CACHE_ROOT": "cache", "DAGSTER_HOME": "dagster"}
        environment = {name: str(place / where) for name, where in roots.items()}
        small = {"MENS_SOURCE_ROOT": str(workspace), "MENS_CONFIG_ROOT": str(config), "MENS_NUM_WORKERS": "1"}
        return Command(["run", "--no-train"], {**environment, **small})

    def outcome(place: Path) -> Outcome:
        store = place / "store"
        found = {name: digest for name, digest in digests(store).items() if _is_in_artifact(name)}
        return {**found, **{path.name: "a draft" for path in store.glob("*/.draft-*")}}

    return [_compare_killed("kill -9 of `mens run --no-train`", budget, folder, command, outcome)]


def merging(budget: Budget, folder: Path) -> list[Figure]:
    run, store = promoted_run(trained_run(folder / "trained"), folder)
    heldout = folder / "trained" / HELDOUT

    def command(place: Path) -> Command:
        if not (place / "store").exists():
            shutil.copytree(store.root, place / "store")
        _age_drafts(place / "store")
        where = {"MENS_STORE_ROOT": str(place / "store"), "MENS_CACHE_ROOT": str(place / "cache")}
        return Command(["merge", "--run-dir", str(run), "--heldout", str(heldout), "--device", "cpu"], where)

    def outcome(place: Path) -> Outcome:
        # The work folder of a killed merge is not an artifact: `mens store prune` removes it some days later.
        found = {
            name: digest
            for name, digest in digests(place / "store" / Kind.MERGED_MODEL).items()
            if name[:6] != ".work-"
        }
        return {name: digest for name, digest in found.items() if name.endswith(".safetensors") or ".draft-" in name}

    return [_compare_killed("kill -9 of `mens merge`", budget, folder, command, outcome)]


def serving(budget: Budget, folder: Path) -> list[Figure]:
    _, store = promoted_run(trained_run(folder / "trained"), folder)
    where = {"MENS_STORE_ROOT": str(store.root), "MENS_CACHE_ROOT": str(folder / "cache")}
    command = Command(["serve", "--port", "0", "--device", "cpu"], where)
    dice, wrong, before, kills, seconds = random.Random(3), list[str](), digests(store.root), 0, 0.0
    budget.begin()
    while budget.goes_on():
        number = budget.done
        kills += seconds > 0 and command.kill_after(dice.uniform(0, seconds), with_children=dice.random() < 0.5)
        begun, process = time.monotonic(), command.start()
        assert process.stdout is not None
        url = next((found[1] for line in process.stdout if (found := _READY.search(line))), "")
        seconds = time.monotonic() - begun
        answered = [_status(url)] if url else []
        asking = Thread(target=_status, args=(url,))
        asking.start()
        time.sleep(dice.uniform(0, 1))
        process.kill()
        asking.join()
        process.communicate()
        kills += 1
        wrong += [] if answered == [_OK] else [f"start {number}: a completion ends with {answered}"]
        wrong += [f"start {number}: still running: {name}" for name in processes_about(folder)]
        wrong += [] if digests(store.root) == before else [f"start {number}: the store has changed"]
    value = f"{kills} kills, after each of which it starts again in {seconds:.0f} s and answers"
    return [Figure("kill -9 of `mens serve`", value, tuple(wrong))]


def _status(url: str) -> int:
    request = {"messages": [{"role": "user", "content": "Write a function f."}], "max_tokens": 200}
    try:
        return httpx2.post(f"{url}/v1/chat/completions", json=request, timeout=60).status_code
    except httpx2.HTTPError:
        return 0


def small_workspace(folder: Path) -> Path:
    seed = PROJECT_ROOT / "data"
    shutil.copytree(seed / "docs", folder / "docs")
    shutil.copytree(seed / "golden" / "core", folder / "golden" / "core")
    return folder


def small_config(folder: Path) -> Path:
    shutil.copytree(PROJECT_ROOT / "config", folder)
    path = folder / "pipeline.yaml"
    path.write_text(_LIMIT.sub(r"\g<1>200", path.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    return folder


def _compare_killed(
    what: str, budget: Budget, folder: Path, command: Callable[[Path], Command], outcome: Callable[[Path], Outcome]
) -> Figure:
    dice, wrong, num_runs = random.Random(1), list[str](), 0
    whole = folder / "whole"
    whole.mkdir()
    begun = time.monotonic()
    code, said = command(whole).run()
    seconds, expected = time.monotonic() - begun, outcome(whole)
    if code != 0:
        return Figure(what, "not begun: it fails without a kill", (said[-300:],))
    kills = 0
    budget.begin()
    while budget.goes_on():
        place = folder / f"run-{num_runs}"
        place.mkdir()
        at = [dice.uniform(0, 1.05 * seconds) for _ in range(dice.randint(1, _MOST_IN_A_RUN))]
        landed = sum(command(place).kill_after(after, with_children=dice.random() < 0.5) for after in at)
        kills += landed
        budget.done += max(0, landed - 1)
        left = processes_about(place)
        code, said = command(place).run()
        found = outcome(place)
        num_runs += 1
        details = f"run {num_runs}, killed after {', '.join(f'{after:.1f}' for after in at)} s"
        wrong += [f"{details}: still running: {name}" for name in left]
        if code != 0:
            wrong.append(f"{details}: ends with {code}: {said[-200:]}")
        elif found != expected:
            names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
            wrong.append(f"{details}: differs in {', '.join(names)[:200]}")
        shutil.rmtree(place)
    same = num_runs - len({line.split(",")[0] for line in wrong})
    value = f"{kills} kills in {num_runs} runs; {same} of them end with the same files; a run takes {seconds:.0f} s"
    return Figure(what, value, tuple(wrong))


def _is_in_artifact(name: str) -> bool:
    parts = name.split("/")
    return len(parts) > 2 and len(parts[1]) == _ARTIFACTS and parts[-1] != "manifest.json"


def _age_drafts(store: Path) -> None:
    """As if the next run came a minute later: a younger draft may belong to a process that is about to lock it."""
    then = time.time() - _DRAFT_SECONDS
    for path in store.glob("*/.draft-*"):
        os.utime(path, (then, then))
