"""The artifact store, stages, and files in JSON lines and YAML; independent of Vox."""
