"""A recursive-descent parser that follows the grammar rule by rule."""
