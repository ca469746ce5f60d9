"""Tests of mens_pipeline.corpus.evolution."""
