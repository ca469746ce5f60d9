"""Tests of the validation, the split and the mix of pairs."""
