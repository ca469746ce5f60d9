"""Measure how much Python an adapter forgets: the loss of HumanEval-Vox references printed as Python.

`python -m mens_pipeline_tests.bench.python_losses RUN`
"""

import argparse
import math
from pathlib import Path

from mens_pipeline.inference.dense_model import speed_up
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.inference.prepare import evaluated_model
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import Adapter
from mens_pipeline_tests.bench.python_beside_vox import UntranslatedError, _tasks, ask_in_python, print_functions


def main() -> None:
    import torch
    from transformers import AutoTokenizer, DynamicCache

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    options = parser.parse_args()
    rows = []
    for task in _tasks():
        try:
            code, prompt = print_functions(task.reference), ask_in_python(task.prompt)
        except UntranslatedError:
            continue
        if prompt is not None:
            rows.append((prompt, code))
    adapter = Adapter.open(options.run)
    found = {}
    for role in ("base", "adapter"):
        evaluated = evaluated_model(role, adapter, resolve_device(DeviceChoice.CPU))
        model = speed_up(load_evaluated(evaluated), 32, in_eight_bits=False)
        tokenizer = AutoTokenizer.from_pretrained(evaluated.base_path)
        for form in ("chat", "text"):
            losses = []
            for prompt, code in rows:
                head, _, body = code.partition("\n")
                if form == "chat":
                    turns = [("system", "You are a helpful assistant."), ("user", prompt)]
                    before = "".join(f"<|im_start|>{who}\n{said}<|im_end|>\n" for who, said in turns)
                    before += "<|im_start|>assistant\n```python\n"
                    after = code
                else:
                    before, after = f'{head}\n    """{prompt}"""\n', body
                ids, num = tokenizer(before).input_ids, len(tokenizer(after).input_ids)
                ids = torch.tensor([[*ids, *tokenizer(after).input_ids]])
                with torch.inference_mode():
                    cache = DynamicCache(config=model.config)
                    logits = model(input_ids=ids, past_key_values=cache, logits_to_keep=num + 1).logits[0, :-1]
                loss = torch.nn.functional.cross_entropy(logits, ids[0, -num:], reduction="sum")
                losses.append((float(loss), num))
            found[role, form] = losses
            print(role, form, len(losses), round(sum(x for x, _ in losses) / sum(n for _, n in losses), 4), flush=True)
    for form in ("chat", "text"):
        a, b = found["adapter", form], found["base", form]
        n = sum(x[1] for x in a)
        d = sum(x[0] - y[0] for x, y in zip(a, b, strict=True)) / n
        off = [x[0] - y[0] - d * x[1] for x, y in zip(a, b, strict=True)]
        print(form, round(d, 4), "+-", round(1.96 * math.sqrt(sum(o * o for o in off)) / n, 4))


if __name__ == "__main__":
    main()
