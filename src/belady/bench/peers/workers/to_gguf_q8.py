"""`python to_gguf_q8.py FILE.gguf TARGET.gguf`: the same model with 8-bit blocks, by llama.cpp's own quantiser."""

from __future__ import annotations

import sys


def main(source: str, target: str) -> None:
    import llama_cpp  # type: ignore[import-not-found]

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    params.allow_requantize = True
    status = llama_cpp.llama_model_quantize(source.encode(), target.encode(), params)
    if status:
        raise SystemExit(f"error: llama_model_quantize says {status}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
