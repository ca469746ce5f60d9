"""How replies of a generator are read: as the answers of models are when they are judged."""

from mens_pipeline.corpus.evolution.examine import Reading
from mens_pipeline.evaluation.answer_code import has_placeholder, is_refusal, program_in


def read_reply(text: str) -> Reading:
    """Read a reply as completions are read when models are judged.

    Args:
        text: What the model wrote.
    """
    program = program_in(text)
    return Reading(program=program, is_refusal=is_refusal(text), is_stub=has_placeholder(program))
