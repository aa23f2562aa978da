"""What a model writes, read as text, reasoning and calls of tools."""
