"""Readers of weight files: GGUF and safetensors behind one protocol, canonical names and float32 out."""
