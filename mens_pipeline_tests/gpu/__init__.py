"""What a GPU machine that reaches nothing is given, and what it is asked."""
