"""What a model costs: parameters, bytes and arithmetic computed from its dimensions. Knows no device and no step.

Plain dense decoders only (rotary positions, gated feed-forward, grouped-query attention), full or sliding-window.
"""

from __future__ import annotations

from dataclasses import dataclass

from belady.sim.catalog import load_table, pick

DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "float8": 1.0, "int8": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers whose KV has one lifetime; `window` in tokens, None for full attention."""

    name: str
    layers: int
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Dimensions of one network; `norms` counts norm vectors per layer."""

    name: str
    source: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_context: int
    tied: bool = False
    norms: int = 2
    qkv_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    window_layers: int = 0

    def __post_init__(self) -> None:
        assert (self.window is None) == (self.window_layers == 0), "a window and its layers come together"
        assert self.window_layers < self.layers, "at least one layer has full attention"

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """Full attention first."""
        full = LayerGroup(name="full", layers=self.layers - self.window_layers)
        if self.window is None:
            return (full,)
        return (full, LayerGroup(name="window", layers=self.window_layers, window=self.window))

    @property
    def parameters(self) -> int:
        """All weights of the checkpoint."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        bias = (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        norms = self.norms * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        layer = attention + bias + norms + 3 * self.hidden * self.ffn
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * layer + self.hidden

    @property
    def active_parameters(self) -> int:
        """Weights that every token passes through: the input embedding, a mere look-up, is left out."""
        return self.parameters - (0 if self.tied else self.vocab * self.hidden)

    def kv_bytes_per_token(self, group: LayerGroup, dtype: str) -> float:
        """Bytes of keys and values per token in the layers of `group`."""
        return 2 * group.layers * self.kv_heads * self.head_dim * DTYPE_BYTES[dtype]

    def attention_flops_per_pair(self, group: LayerGroup) -> float:
        """FLOP per (query, key) pair in the layers of `group`: scores and weighted sum."""
        return 4.0 * group.layers * self.heads * self.head_dim


def models() -> dict[str, Model]:
    """All shipped descriptions by name."""
    return load_table("models.toml", Model)


def model(name: str) -> Model:
    """The description called `name`; raises `CatalogError` for an unknown one."""
    return pick("model", name, models())
