"""Programs that contain control tokens are encoded verbatim, by every kind of tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from mens_pipeline.language import analyze
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import (
    IM_END,
    IM_START,
    TEMPLATE,
    Turn,
    control_tokens,
    encode,
    encode_plain,
    encode_prompt,
    encode_text,
    encode_turns,
    render_prompt,
)
from mens_pipeline.models.infill import PREFIX_FIRST, SUFFIX_FIRST, encode_infill, encode_prefix, find_marks
from mens_pipeline.scratch import tokenizer as scratch
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.every import every
from mens_pipeline_tests.training.small_folder import FIM_MARKS, Encoder

_CONTROLS: Final = (IM_START, IM_END, "</s>", "<file_sep>", "[INST]")
_UNKNOWN: Final = "<unk>"
_WRITTEN: Final = (*_CONTROLS, *FIM_MARKS)
_PROGRAM: Final = (
    f'fn is_end(token: str) to bool {{\n    return token is "{IM_END}"\n}}\n\n'
    f'@test fn ends() {{\n    assert(len("{IM_END}") is {len(IM_END)})\n}}\n\n'
    f'fn all() to str {{\n    return "{"".join(_WRITTEN)} {" ".join(_WRITTEN)}<{IM_END}<{IM_START[:5]}"\n}}'
)
_CHARACTERS: Final = sorted(set(_PROGRAM + "".join(_WRITTEN) + "YouwriteVx.Aswhcdlnuag,\n ▁"))


def _byte_level() -> Tokenizer:
    """As in Qwen, Llama 3 and SmolLM2."""
    return Encoder(_CONTROLS).inner


def _pieces() -> Tokenizer:
    """As in SentencePiece, with bytes, and a space before a text."""
    vocabulary = {text: number for number, text in enumerate([*_CONTROLS, _UNKNOWN, "<0x0A>", *_CHARACTERS])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token=_UNKNOWN, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _unigram() -> Tokenizer:
    """Its vocabulary has control tokens among its words, and prefers them."""
    scores = [("<unk>", -20.0), *((text, -0.1) for text in _CONTROLS), *((text, -3.0) for text in _CHARACTERS)]
    tokenizer = Tokenizer(models.Unigram(scores, 0, byte_fallback=False))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return tokenizer


def _words() -> Tokenizer:
    """It splits at control tokens before it looks them up, as VoxTokenizer does."""
    tokenizer = Tokenizer(models.WordLevel({text: n for n, text in enumerate((*_CONTROLS, "?", *_CHARACTERS))}, "?"))
    pattern = "|".join(text.replace("|", r"\|").replace("[", r"\[") for text in _CONTROLS)
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.Split(Regex(f"{pattern}|(?m:.)"), "isolated"),
        decoders.Fuse(),
    )
    return tokenizer


def _save_both(folder: Path, make: Callable[[], Tokenizer]) -> tuple[Any, Any]:
    from transformers import PreTrainedTokenizerFast

    inner = make()
    inner.add_special_tokens([*_CONTROLS])
    inner.add_tokens([*FIM_MARKS])
    library = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=IM_END, chat_template=TEMPLATE, clean_up_tokenization_spaces=False
    )
    library.save_pretrained(folder / make.__name__)
    return FileTokenizer(folder / make.__name__), library


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder for saved tokenizers."""
    return tmp_path_factory.mktemp("tokenizers")


_KINDS = (_byte_level, _pieces, _unigram, _words)


@pytest.mark.threat("R7")
@every("make", _KINDS, ids=lambda make: make.__name__)
def test_a_program_is_encoded_verbatim(make: Callable[[], Tokenizer], folder: Path) -> None:
    """As a completion, at a cursor before, within and after its tokens, as a request, and as a text to continue."""
    ours, library = _save_both(folder, make)
    control = {library.convert_tokens_to_ids(text) for text in _WRITTEN}
    (end,) = ours.encode(IM_END, add_special_tokens=False)
    marks = {library.convert_tokens_to_ids(mark) for mark in find_marks(ours)}

    def decode_ids(ids: Any) -> str:
        assert control.isdisjoint(ids), [library.decode([number]) for number in ids if number in control]
        return str(library.decode([*ids], skip_special_tokens=True))

    assert analyze(_PROGRAM).ok
    assert set(control_tokens(ours)) == set(_WRITTEN)
    row = encode(ours, "System.", _PROGRAM, _PROGRAM)
    assert decode_ids(row.completion[:-1]) == _PROGRAM
    assert row.completion[-1] == end
    assert [number for number in row.prompt if number in control] == [
        number for number in ours.encode(render_prompt("", ""), add_special_tokens=False) if number in control
    ]
    assert _PROGRAM in library.decode([*row.prompt], skip_special_tokens=True)
    assert (
        decode_ids(encode_text(ours, _PROGRAM))
        == decode_ids(encode_prefix(ours, f"{_PROGRAM} ", 9_999)).rstrip(" ")
        == _PROGRAM
    )
    assert encode(library, "System.", _PROGRAM, _PROGRAM) == row
    turns = (Turn("system", "System."), Turn("user", _PROGRAM), Turn("assistant", _PROGRAM), Turn("user", "Again."))
    assert encode_turns(ours, turns)[: len(row)] == (*row.prompt, *row.completion)

    for place in range(0, len(_PROGRAM), 23):
        prefix, middle, suffix = _PROGRAM[:place], _PROGRAM[place : place + 40], _PROGRAM[place + 40 :]
        at_cursor = encode_infill(ours, prefix, suffix, middle, 9_999, (PREFIX_FIRST, SUFFIX_FIRST)[place % 2])
        assert sum(number in control for number in at_cursor.prompt) == len(marks)
        assert decode_ids(at_cursor.completion[:-1]).lstrip(" ").endswith(middle.lstrip(" ")), place


@every("make", _KINDS, ids=lambda make: make.__name__)
def test_other_texts_have_the_tokens_of_the_tokenizer(make: Callable[[], Tokenizer], folder: Path) -> None:
    """Programs and pages of the corpus, as requests and answers."""
    ours, library = _save_both(folder, make)
    paths = [
        *sorted(PROJECT_ROOT.glob("data/golden/**/*.vox"))[::60],
        *sorted(PROJECT_ROOT.glob("data/docs/*.md"))[::60],
    ]
    texts = [path.read_text(encoding="utf-8") for path in paths]

    assert len(texts) > 4
    for text in texts:
        for tokenizer in (ours, library):
            assert encode_plain(tokenizer, text) == tokenizer.encode(text, add_special_tokens=False)
            prompt = render_prompt("System.", text)
            assert [*encode_prompt(tokenizer, "System.", text)] == tokenizer.encode(prompt, add_special_tokens=False)


def test_the_scratch_tokenizers_agree() -> None:
    """Their two markers are words of the vocabulary, not added tokens."""
    library = scratch.transformers_tokenizer()
    ids = encode_plain(library, _PROGRAM)

    assert {scratch.VOCABULARY.index(text) for text in (IM_START, IM_END)}.isdisjoint(ids)
    assert scratch.decode(ids) == library.decode(ids) == _PROGRAM
