"""Observe functions: draw arguments, refuse mutants, choose examples and hidden tests."""
