"""Compile syntax trees to closures: names are resolved once, and programs run by calls of the closures."""
