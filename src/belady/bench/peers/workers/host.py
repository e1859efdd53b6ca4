"""`python host.py WORKER`: an engine behind JSON lines, run by the Python that has this engine.

Stands alone, because a peer's environment has nothing of ours. WORKER is a module beside this file with a class `Worker`:
`load(**settings) -> dict` once, then `generate(prompts, tokens) -> (ids, times)`, greedy, stop tokens ignored, where
`times` holds for each token of each prompt the seconds from the call until it was there.

One request a line on standard input, one reply a line on what was standard output: libraries that print there are heard
on standard error instead. A failure is a reply (`error`), and does not end the process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = importlib.import_module(sys.argv[1]).Worker()
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "quit":
            break
        replies.write(json.dumps(answer(worker, request)) + "\n")
        replies.flush()
    os._exit(0)  # some engines hang or crash when they are taken down; nothing of theirs is needed any more


def answer(worker: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request."""
    try:
        if request["op"] == "load":
            return {"ok": True, **worker.load(**request["settings"])}
        if request["op"] == "generate":
            ids, times = worker.generate(request["prompts"], request["tokens"])
            return {"ok": True, "ids": ids, "times": times}
        raise ValueError(f"unknown op {request['op']!r}")
    except BaseException as error:
        traceback.print_exc()
        text = " ".join(str(error).split())
        return {"ok": False, "error": f"{type(error).__name__}: {text}"[:300]}


if __name__ == "__main__":
    main()
