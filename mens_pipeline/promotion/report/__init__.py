"""Models side by side: figures, differences and completions, for people."""
