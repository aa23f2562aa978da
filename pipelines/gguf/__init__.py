"""GGUF files: a model's weights, sizes and tokenizer in one file, as llama.cpp writes it."""
