"""Bundle and checks for a GPU machine without network."""
