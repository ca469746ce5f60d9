"""What a model writes, scored and compared."""
