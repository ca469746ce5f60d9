"""Completion on a GPU; skipped if there is none."""

from collections.abc import Callable

import pytest

from mens_pipeline_tests.bench.engine import complete_plainly, complete_staggered, random_prompts, tiny_model

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.mark.parametrize("kind", ["llama", "qwen3_5_text"])
def test_a_gpu_writes_the_tokens_of_a_cpu(kind: str, record_property: Callable[[str, object], None]) -> None:
    model = tiny_model(kind)
    prompts = random_prompts(model)
    on_cpu = [complete_plainly(model, prompt, 20) for prompt in prompts]
    on_gpu = complete_staggered(model.to("cuda"), prompts, 20)
    same = sum(ours == theirs for ours, theirs in zip(on_gpu, on_cpu, strict=True))
    record_property("same", f"{same} of {len(prompts)}")

    assert on_gpu == on_cpu
