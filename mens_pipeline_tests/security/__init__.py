"""What strangers could do, tried: hostile sources, rows, models, records and texts. `docs/security.md` names each."""
