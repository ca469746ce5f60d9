"""What the names of a program mean: declarations, scopes, and the uses that mean nothing."""
