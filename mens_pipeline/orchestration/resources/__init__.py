"""Resources that assets work with."""
