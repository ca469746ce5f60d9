"""Attacks of strangers: hostile sources, rows, models, records and texts. `docs/security.md` lists them."""
