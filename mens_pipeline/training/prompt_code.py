"""Vox code that a prompt shows, and the tokens that it stands in."""

from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.language import analyze, mode_of
from mens_pipeline.training.chat import Encoded, Tokenizer, control_tokens, escape, opening_for, render_prompt

_BREAK = "\n\n"


def code_in(pair: TrainingPair) -> str | None:
    """Return the program that a prompt ends with, after a sentence such as `It goes with this code:`.

    What the front end rejects, such as a program to be repaired, is no code to learn; nor is a name in a sentence.

    Args:
        pair: A request and its answer.
    """
    mode = mode_of(pair.source.path if pair.source is not None else "")
    start = pair.prompt.find(_BREAK)
    while start >= 0:
        code = pair.prompt[start + len(_BREAK) :]
        module = analyze(code, mode).module
        if module is not None and module.declarations:
            return code
        start = pair.prompt.find(_BREAK, start + 1)
    return None


def code_tokens(tokenizer: Tokenizer, system: str, pair: TrainingPair, encoded: Encoded) -> tuple[int, int]:
    """Return the range of a prompt's tokens in which its code stands, half-open; (0, 0) without code.

    Args:
        tokenizer: Of the base model.
        system: What the model is told before every request.
        pair: A request and its answer.
        encoded: The pair as ids.
    """
    code = code_in(pair)
    if code is None:
        return (0, 0)
    control = control_tokens(tokenizer)
    text, shown = render_prompt(system, pair.prompt, control, opening_for(tokenizer)), escape(code, control)
    at = text.rindex(shown)
    before = tokenizer.encode(text[:at], add_special_tokens=False)
    # A tokenizer may join the blank line with what follows it; what is the same up to there stands before the code.
    same = next(
        (n for n, pair in enumerate(zip(before, encoded.prompt, strict=False)) if len(set(pair)) > 1), len(before)
    )
    # A control token follows the code, over whose border no token reaches.
    after = tokenizer.encode(text[at + len(shown) :], add_special_tokens=False)
    return (same, len(encoded.prompt) - len(after))
