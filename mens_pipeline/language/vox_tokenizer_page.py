"""The page that publishes the table of VoxTokenizer.

`python -m mens_pipeline.language.vox_tokenizer_page > docs/vox-tokenizer.md` writes it anew.
"""

import sys
from typing import Final

from mens_pipeline.language.vox_tokenizer import COMPOUNDS, CONTROLS, EOS, PAD, UNK, VOCABULARY

_CONTROL_USES: Final = {PAD: "fills a row up", UNK: "a character without an id", EOS: "the end of a row"}
_PAGE: Final = """# VoxTokenizer

The tokenizer of the model that is made from scratch: 3 control ids, the 95 printable characters of ASCII
(id = byte - 29), and 35 compounds. `python -m mens_pipeline.language.vox_tokenizer_page` writes this page, and a
test says when it is out of date.

- **Matching** is greedy: at each place the longest compound that matches, else one character. Words have no borders:
  `fn` is found in `fnord` as well.
- **What comes back.** Every text of printable ASCII, ends of line and tabs: `decode(encode(text)) == text`.
- **What does not.** Any other character, such as `é` or a carriage return, gives one `[UNK]`, which comes back as
  U+FFFD. `num_unknown` counts them. A row whose answer holds one does not train, and is counted as `not_ascii`.
- **Control ids** are never written by a text: `[EOS]` in a program is five characters.
- **Which compounds.** Four named words of Vox, the markers of ChatML, layout, and 24 pieces of Vox, each the one that
  shortened the golden programs most when it was its turn.

`␣` is a blank, `\\n` an end of line, `\\t` a tab.

| id | token | what |
|---|---|---|
{table}
"""


def vocabulary_page() -> str:
    """Return the table of ids as a Markdown page: `docs/vox-tokenizer.md`."""
    rows = [f"| {number} | {_shown(token)} | {_about(number)} |" for number, token in enumerate(VOCABULARY)]
    return _PAGE.format(table="\n".join(rows))


def _shown(token: str) -> str:
    written = token.replace("\n", "\\n").replace("\t", "\\t").replace("|", "\\|")
    return f"`` {written} ``" if "`" in token else f"`{written.replace(' ', '␣')}`"


def _about(number: int) -> str:
    if number < len(CONTROLS):
        return _CONTROL_USES[number]
    return "compound" if VOCABULARY[number] in COMPOUNDS else "character"


if __name__ == "__main__":
    sys.stdout.write(vocabulary_page())
