"""The shapes of VoxTransformer, and how many values each has; without the deep learning stack."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from mens_pipeline.language.vox_tokenizer import VOCABULARY

MODEL_TYPE: Final = "vox_transformer"


class ScratchConfig(StrEnum):
    """Named sizes of a model."""

    DEFAULT = "default"
    SMALL = "small"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a VoxTransformer; names are those of Hugging Face.

    Attributes:
        num_attention_heads: Of each block; they share the width evenly.
        intermediate_size: The width inside the feed-forward part.
        dropout: Share left out while training, of the weights of attention and of what the feed-forward part gives.
    """

    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    hidden_size: int = 512
    intermediate_size: int = 2048
    dropout: float = 0.1
    max_position_embeddings: int = 512
    vocab_size: int = len(VOCABULARY)

    def as_json(self) -> dict[str, float]:
        """Return the shape in JSON types."""
        return asdict(self)

    @property
    def num_parameters(self) -> int:
        """Values that train.

        A block has four square projections and two of the feed-forward part, each with a bias, and two norms of two
        values a unit of width. Besides there are embeddings of ids and positions, a last norm, and a head without bias
        that shares nothing with the embeddings.
        """
        width, inner = self.hidden_size, self.intermediate_size
        attention = 4 * (width * width + width)
        feed_forward = width * inner + inner + inner * width + width
        norms = 2 * 2 * width
        embeddings = (self.vocab_size + self.max_position_embeddings) * width
        head = self.vocab_size * width
        return self.num_hidden_layers * (attention + feed_forward + norms) + embeddings + 2 * width + head


SHAPES: Final = {
    ScratchConfig.DEFAULT: Shape(),
    ScratchConfig.SMALL: Shape(num_hidden_layers=4, num_attention_heads=4, hidden_size=128, intermediate_size=512),
}
"""`default` is the full model, 38,227,968 values; `small` learns in seconds and is there to try things out."""
