"""Tables, plots, self-contained HTML pages and the bench result schema.

A leaf: standard library, msgspec and rich only. It knows how to show numbers and nothing about where they come from.
"""
