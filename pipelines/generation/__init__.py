"""Texts from a language model: requests that come and go, step by step."""
