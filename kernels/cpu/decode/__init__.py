"""Attention of a row that decodes: few queries, bound by reading the cache. It starts in `rows`."""
