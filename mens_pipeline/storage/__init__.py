"""The artifact store, stages, and files in JSON lines and YAML; it knows no Vox."""
