"""One engine for generation: load, cache, decode, constrain, sample."""
