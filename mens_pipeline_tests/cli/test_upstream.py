"""Commands and options of the Rust toolchain that this one lacks."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from mens_pipeline.cli.main import app
from mens_pipeline.cli.upstream import TABLE, advice_on, list_choices
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.yaml_file import load_yaml
from mens_pipeline_tests.cli.invoking import invoke, refusal
from mens_pipeline_tests.evaluation.benches import task, write_bench
from mens_pipeline_tests.every import every


def _refusal(*words: str) -> str:
    return refusal(invoke(*words), RefusedError)


_ADVICE = [(place, word, text) for place in load_yaml(TABLE) for word, text in advice_on(place).items()]
_WORDS = [(*place.split(), word) for place, word, _ in _ADVICE if not word.startswith("-")]
_OPTIONS = [(place.split(), word, text) for place, word, text in _ADVICE if word.startswith("-")]
_OFFERED = {"--backend": "lora", "--tokenizer": "vox", "--device": "vulkan", "--resume": "runs/x/checkpoint_state.json"}
"""Options that exist here too, but without these values."""


@every("words", _WORDS, ids=" ".join)
def test_a_command_of_upstream_names_ours(words: tuple[str, ...]) -> None:
    result = invoke(*words, "--whatever", "x")

    assert f"{words[-1]}: no such command." in refusal(result, ConfigurationError)


@pytest.mark.seed_row(10)
def test_merge_does_not_exist_and_names_mix() -> None:
    result = invoke("corpus", "merge", "a.jsonl", "b.jsonl")

    assert "Use `mens corpus mix`" in str(result.exception)
    assert re.search(r"^ +merge\b", invoke("corpus", "--help").stdout, re.MULTILINE) is None


def test_advice_names_existing_commands() -> None:
    for command in {name for *_, text in _ADVICE for name in re.findall(r"`mens ([a-z-]+(?: [a-z]+)?)", text)}:
        words = command.split() if command.split()[0] in {"corpus", "store", "telemetry"} else command.split()[:1]
        assert invoke(*words, "--help").exit_code == 0, command


@pytest.mark.seed_row(19, 20, 23, 26)
@every("asked", _OPTIONS, ids=lambda asked: " ".join((*asked[0], asked[1])))
def test_an_option_of_upstream_names_its_replacement(asked: tuple[list[str], str, str]) -> None:
    place, option, text = asked
    value = _OFFERED.get(option, "1")
    name = f"{option} {value}" if option in _OFFERED else option
    for words in ((option, value), (f"{option}={value}",), ("--whatever", "x", option, value)):
        assert _refusal(*place, *words) == f"{name} is not supported. {text}"


@pytest.mark.parametrize(("option", "value"), [("--resume", "never"), ("--device", "cpu"), ("--backend", "qlora")])
def test_supported_values_are_accepted(option: str, value: str, tmp_path: Path) -> None:
    assert "train.jsonl: No such file" in str(invoke("train", "--data-dir", tmp_path, option, value).exception)


def test_refused_options_do_not_exist() -> None:
    whole: Any = typer.main.get_command(app)
    for place, option, _ in _OPTIONS:
        command = whole
        for word in place:
            command = command.commands[word]
        known = {name: list_choices(one) for one in command.params for name in (*one.opts, *one.secondary_opts)}
        assert option not in known or _OFFERED[option] not in known[option] != (), (place, option)


def test_replacements_name_existing_fields() -> None:
    from mens_pipeline.training.recipe import Recipe  # noqa: PLC0415 - the command line loads without it

    named = {name for _, _, text in _ADVICE for name in re.findall(r"--set (\w+)=", text)}

    assert named
    assert named <= set(Recipe.model_fields)


@pytest.mark.seed_row(14, 20, 25, 26)
@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("--backend", "lora"), "--backend lora is not supported. Use --backend qlora"),
        (("--tokenizer", "vox"), "Use --tokenizer hf"),
        (("--provider", "local"), "--provider local was removed: training is always local. Run: mens train --backend"),
        (("--provider", "together"), "no remote service trains. Train here: mens train"),
        (("--qlora-allow-partial-proxy-stack",), "All targeted layers are always trained"),
        (("--qlora-lm-head-only",), "All targeted layers are always trained"),
        (("--qlora-proxy-max-layers", "2"), "All targeted layers are always trained"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_refused_option_is_explained(words: tuple[str, ...], advice: str) -> None:
    assert advice in _refusal("train", *words)


@pytest.mark.slow
def test_every_source_of_a_mix_may_be_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOX_BENCHMARK_DIR", str(write_bench(tmp_path / "bench", task())))
    pair = '{"prompt": "Write f.", "response": "fn f() { }"}\n'
    (tmp_path / "mix.yaml").write_text("sources: [{path: a.jsonl}, {path: missing.jsonl}]\n")
    (tmp_path / "a.jsonl").write_text(pair)
    words = ("corpus", "mix", "--config", str(tmp_path / "mix.yaml"), "--data-dir", str(tmp_path))
    strict, lenient = invoke(*words), invoke(*words, "--allow-missing-sources")
    (tmp_path / "a.jsonl").unlink()

    assert isinstance(strict.exception, RefusedError)
    assert lenient.exit_code == 0
    assert "missing_file_optional" in lenient.stdout
    assert "no source contributes a row" in str(invoke(*words, "--allow-missing-sources").exception)


@pytest.mark.seed_row(27)
def test_missing_training_libraries_are_named_with_their_command(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['mens', 'train', '--data-dir', 'x'];"
        "from mens_pipeline.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("mens: torch: not installed. ")
    assert 'pip install -c constraints.txt -e ".[train]"' in done.stderr


@pytest.mark.seed_row(28)
def test_the_form_for_powershell_is_documented_once() -> None:
    pages = [PROJECT_ROOT / "README.md", *(PROJECT_ROOT / "docs").glob("*.md")]
    details = {page.name for page in pages if "$env:" in page.read_text(encoding="utf-8")}

    assert details == {"upstream.md"}


@pytest.mark.seed_row(47)
def test_removed_scripts_are_documented_as_history() -> None:
    page = (PROJECT_ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")

    assert re.search(r"`scripts/datagen.py` and `mens/training/train.py` are history .* no counterpart", page)
