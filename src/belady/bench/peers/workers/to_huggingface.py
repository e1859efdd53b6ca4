"""`python to_huggingface.py FILE.gguf FOLDER`: a GGUF's values as float32 safetensors, with its tokenizer, for engines that
read no GGUF. Runs in the environment of transformers."""

from __future__ import annotations

import sys
from pathlib import Path


def main(source: Path, target: Path) -> None:
    import torch
    import transformers

    folder, name = str(source.parent), source.name
    transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=name,
        quantization_config=transformers.GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    model.save_pretrained(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
