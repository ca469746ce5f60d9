"""Programs broken as people break them: each gives the request to repair it and the sound program."""

from mens_pipeline.corpus.synthesis.repairs.repair import BREAKAGES, repair

__all__ = ["BREAKAGES", "repair"]
