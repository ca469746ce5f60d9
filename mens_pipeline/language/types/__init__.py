"""Light types: what can be known of the values of a program without annotations everywhere; the rest is unknown."""
