"""Belady serves LLM agents with one decision core under a real engine and a simulator.

This package root knows only its version; import what you need from the rooms below it
(see `ARCHITECTURE.md`).
"""

__version__ = "0.1.0"
