"""Experiments: one file a claim, each run by `belady bench NAME`, all reporting in one schema (docs/bench.md)."""
