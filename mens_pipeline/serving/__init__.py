"""A model over HTTP, in the formats of OpenAI, Ollama, llama.cpp and Mistral."""
