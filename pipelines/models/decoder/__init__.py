"""Language models: one graph for all families of decoders, and what sets these apart."""
