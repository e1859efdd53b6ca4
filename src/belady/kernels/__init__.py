"""The ops: what a network may ask for (`program`), what a step hands over (`batch`), and who computes it."""
