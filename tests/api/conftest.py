"""An application over the mock engine, driven in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from belady.api.app import create_app
from belady.api.config import ApiConfig
from belady.api.mock import MockConfig, MockEngine


class Harness:
    """A mock engine and a synchronous client of its application."""

    def __init__(self, mock: MockConfig | None = None, config: ApiConfig | None = None) -> None:
        self.engine = MockEngine(mock)
        self.app = create_app(self.engine, config)

    def run(self, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await work(client)

        return asyncio.run(main())

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        return self.run(lambda client: client.request(method, path, **kwargs))

    def post(self, path: str, body: Any, **kwargs: Any) -> httpx.Response:
        return self.request("POST", path, json=body, **kwargs)

    def chat(self, content: str = "hello", **fields: Any) -> httpx.Response:
        return self.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields}
        )

    def complete(self, prompt: Any = "hello", **fields: Any) -> httpx.Response:
        return self.post("/v1/completions", {"prompt": prompt, **fields})


@pytest.fixture
def server() -> Harness:
    return Harness()


@pytest.fixture
def make() -> type[Harness]:
    return Harness


def sse_events(response: httpx.Response) -> list[Any]:
    """The stream's JSON values; checks that it is well formed and ends with [DONE]."""
    blocks = response.text.split("\n\n")
    assert blocks[-1] == ""
    data = [block for block in blocks[:-1] if not block.startswith(":")]
    assert all(block.startswith("data: ") for block in data)
    assert data[-1] == "data: [DONE]"
    return [json.loads(block[6:]) for block in data[:-1]]


@pytest.fixture
def events() -> Callable[[httpx.Response], list[Any]]:
    return sse_events
