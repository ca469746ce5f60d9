"""Name resolution: declarations, scopes, and uses without a declaration."""
