"""The next use of every prompt position, for offline policies: one pass backwards over a known order of requests.

Works on any keys through a radix tree, so that ids need not be global. Times are order numbers: the n-th request is
used at n. Only an open loop has such an order before it is run.
"""

from __future__ import annotations

from collections.abc import Iterable

from belady.core.forecast import NEVER, Reuse
from belady.core.prefix_tree import KEY_BYTES, PrefixTree, Span


def next_uses(prompts: Iterable[tuple[str, bytes]]) -> list[tuple[Reuse, ...]]:
    """For each (namespace, prefix keys), in order of use: when each run of its keys is next used.

    Keys behind the last entry, and of entries with `NEVER`, are not used again.
    """
    order = list(prompts)
    tree = PrefixTree(page_keys=1, groups=0)
    found: list[tuple[Reuse, ...]] = [()] * len(order)
    for number in range(len(order) - 1, -1, -1):
        namespace, keys = order[number]
        found[number] = _visit(tree, namespace, keys, float(number))
    return found


def _visit(tree: PrefixTree, namespace: str, keys: bytes, number: float) -> tuple[Reuse, ...]:
    """Read the later uses along the path of `keys`, then mark the whole path as used at `number`."""
    walk = tree.walk(tree.root(namespace), keys)
    span = tree.split(walk.partial, walk.inside) if walk.partial is not None and walk.inside else walk.span
    uses: list[Reuse] = []
    node: Span | None = span
    while node is not None and node.parent is not None:
        at = NEVER if node.next_use is None else node.next_use
        if not uses or uses[-1].at != at:
            uses.append(Reuse(node.end, at))
        node.next_use = number
        node = node.parent
    if walk.keys * KEY_BYTES < len(keys):
        tree.attach(span, keys[walk.keys * KEY_BYTES :], b"").next_use = number
    return tuple(reversed(uses))
