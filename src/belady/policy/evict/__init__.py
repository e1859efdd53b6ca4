"""Eviction policies: which cached run loses its tail first (`belady.core.view.EvictPolicy`)."""
