"""The decision core: pure, deterministic, without clocks, files, sockets, randomness or tensors.

All changes to the ledger and the queues happen here; this package does not know whether time is real.
Drivers feed it facts and a time, it answers with a plan and events (`belady.core.scheduler.Scheduler.step`).
"""
