"""Text to syntax tree: a recursive-descent parser that follows the grammar rule by rule."""
