"""A model over HTTP, in the shapes of OpenAI and Ollama."""
