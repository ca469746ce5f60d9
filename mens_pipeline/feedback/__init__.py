"""Learning from what compiler and tests say of a model's own completions."""
