"""Wire protocols over HTTP: requests in, deltas out. Knows an `EngineClient`, never an engine."""
