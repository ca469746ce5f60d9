"""Records, pairs, and the reasons why something is dropped."""
