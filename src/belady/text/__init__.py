"""Text in and out of a model: tokenizers, incremental detokenising, stop strings, chat templates. A leaf."""
