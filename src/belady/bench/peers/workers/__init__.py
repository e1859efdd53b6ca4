"""Scripts that run with a peer's own Python. They import nothing of ours; `host.py` runs one of them."""
