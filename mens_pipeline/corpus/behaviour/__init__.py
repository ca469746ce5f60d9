"""Functions observed: argument lists drawn, mutants refused, examples and hidden tests chosen."""
