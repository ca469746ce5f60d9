"""Training on rewards of answers that a model writes while it trains (GRPO)."""
