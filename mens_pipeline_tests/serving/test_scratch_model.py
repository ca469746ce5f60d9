"""A model that was made from scratch is served as any other, by the same engine."""

import shutil
from pathlib import Path

import pytest

from mens_pipeline.cli.serve import ServeOptions, _choose_model
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.language import analyze
from mens_pipeline.scratch.recipe import SHAPES, ScratchConfig
from mens_pipeline.scratch.run import merge_scratch
from mens_pipeline.scratch.tokenizer import transformers_tokenizer
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline.serving.served_model import merged_model
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.serving.running import CPU, running

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def mean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mean of two small models with random weights."""
    from mens_pipeline.scratch.train import build_model  # noqa: PLC0415 - loads the deep learning stack

    folder = tmp_path_factory.mktemp("scratch")
    sources = [folder / "one", folder / "two"]
    for source in sources:
        build_model(SHAPES[ScratchConfig.SMALL]).save_pretrained(source)
        transformers_tokenizer().save_pretrained(source)
    merge_scratch(sources, folder / "mean")
    return folder / "mean"


@pytest.mark.seed_row(22, 23)
def test_completes_with_a_mean_of_models(mean: Path) -> None:
    constrained = Syntax.CONSTRAINED
    with running(mean, ServerLimits(1, 20_000, 60.0, 60), syntax=constrained) as server, server.http() as client:
        messages = [{"role": "user", "content": "Write a function `add`."}]
        answer = client.post("/v1/chat/completions", json={"model": "mean", "messages": messages}).json()

    assert answer["usage"]["prompt_tokens"] > 20
    assert analyze(answer["choices"][0]["message"]["content"]).ok
    assert server.served.max_context == SHAPES[ScratchConfig.SMALL].max_position_embeddings
    assert (server.served.architecture, server.served.num_parameters) == ("GPT2LMHeadModel", 892_928)


def test_a_run_folder_names_its_model(mean: Path, tmp_path: Path) -> None:
    shutil.copytree(mean, tmp_path / "run" / "model")
    (tmp_path / "run" / "training_manifest.json").write_text('{"lane": "scratch"}')
    served = _choose_model(ServeOptions(run_dir=tmp_path / "run"), ArtifactStore(tmp_path / "store"), CPU)

    assert served.evaluated.base_path == tmp_path / "run" / "model"


def test_rejects_a_model_with_an_adapter_beside_it(mean: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(mean, tmp_path / "copy"))
    (folder / "adapter_config.json").write_text("{}")

    with pytest.raises(RefusedError, match=r"an adapter of another model .*\. Name that model"):
        merged_model(folder, CPU)
