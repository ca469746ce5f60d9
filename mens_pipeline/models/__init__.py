"""Models as files: base models, adapters with their manifests, prompts as tokens, and model cards."""
