"""QLoRA training: recipes, checks, plans and the training process."""
