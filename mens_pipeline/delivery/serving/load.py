"""From a folder to a model that can answer, in the thread that writes answers: it loads the deep learning stack."""

import logging
import warnings

from mens_pipeline.delivery.serving.engine import Loaded
from mens_pipeline.delivery.serving.served_model import ServedModel
from mens_pipeline.errors import RefusedError


def load(served: ServedModel) -> Loaded:
    """Load a model as it was judged.

    Args:
        served: What is loaded.

    Raises:
        RefusedError: Its files do not make a model.
    """
    import torch
    from safetensors import SafetensorError  # noqa: PLC0415 - likewise
    from transformers import AutoTokenizer

    from mens_pipeline.inference.generate import vocabulary_of  # noqa: PLC0415 - likewise
    from mens_pipeline.inference.model import load_judged  # noqa: PLC0415 - likewise

    # Numbers next to zero slow a CPU down a hundredfold, and decide nothing.
    torch.set_flush_denormal(True)
    _quieten()
    path = served.judged.base_path
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        model = load_judged(served.judged)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise RefusedError(f"{path}: cannot be loaded ({str(error)[:300]}). Write the model again.") from error

    return Loaded(model, vocabulary_of(tokenizer, model).stop, tokenizer)


def _quieten() -> None:
    """Keep what libraries say about themselves out of the log of a server."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    # PEFT 0.21.2 asks transformers 5.23.0 for a property by its old name.
    warnings.filterwarnings("ignore", ".is_gradient_checkpointing", FutureWarning)
