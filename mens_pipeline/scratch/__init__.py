"""The side branch: a small model that is made from scratch, with a tokenizer of its own."""
