"""Tasks, completions, scores and comparisons of models."""
