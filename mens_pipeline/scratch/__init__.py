"""The side branch: a small model trained from scratch, with its own tokenizer."""
