"""A process of its own: a GGUF file to a Hugging Face folder with safetensors, tokenizer and chat template.

`python -m mens_pipeline.training.convert_gguf FILE FOLDER`
"""

import shutil
import sys
from pathlib import Path


def convert(gguf: Path, target: Path) -> None:
    """Dequantise once to float32; the folder is there whole or not at all, in the place of any other."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    draft = target.with_name(f".{target.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
    )
    # What is saved is no longer quantised, and must not say that it is.
    del model.config.quantization_config
    model.__dict__["hf_quantizer"] = None
    model.save_pretrained(draft)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False).save_pretrained(draft)
    shutil.rmtree(target, ignore_errors=True)
    draft.replace(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
