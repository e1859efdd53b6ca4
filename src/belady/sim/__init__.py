"""The virtual driver: the decision core on a virtual clock, with step times from a cost model.

It never imports the engine: what both share is `belady.core`.
"""
