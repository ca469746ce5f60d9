"""QLoRA training and what it needs."""
