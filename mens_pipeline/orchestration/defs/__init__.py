"""The graph, one stage per file."""
