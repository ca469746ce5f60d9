"""From syntax trees to closures: names are resolved once, and running is calling."""
