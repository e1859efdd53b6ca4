"""Policies: one file per published idea, named for it. They propose; the core disposes. Pure, like the core."""
