"""The real driver: the decision core with a real clock, a real executor and asyncio streams."""
