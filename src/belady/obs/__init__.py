"""Observation: translations of core events and deltas. Sees facts and decisions, changes nothing."""
