"""A grammar file of Vox for engines that decode by one, such as vLLM and llama.cpp."""
