"""One stage of the graph a file."""
