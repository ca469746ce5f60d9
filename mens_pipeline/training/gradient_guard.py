"""Stops a run before an update that would teach nothing or spoil everything."""

import math
from typing import Any

from mens_pipeline.errors import RefusedError


class GradientGuard:
    """To stand before a Trainer: looks at the norm of the gradient of every update before it is used."""

    state: Any

    def _clip_grad_norm(self, model: Any) -> Any:
        """Clip as the library does.

        Raises:
            RefusedError: The norm is zero, infinite or not a number.
        """
        norm = super()._clip_grad_norm(model)  # type: ignore[misc]
        value = float(norm)
        if not math.isfinite(value) or value == 0.0:
            advice = "Lower learning_rate, and look at the rows of this update."
            raise RefusedError(f"update {self.state.global_step + 1}: the gradient norm is {value}. {advice}")
        return norm
