"""The stub server, which also lists its models, as servers that people run do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.models.stub import Entry, Stub


class _Read:
    """A reader whose head was read already."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader) -> None:
        self._head, self._reader = head, reader

    async def readuntil(self, _: bytes) -> bytes:
        return self._head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


class Server(Stub):
    """``models`` are entries of its list, ``running`` what Ollama says that it has loaded, ``moved`` where it sends.

    ``asked`` are the paths that were read, each with the key that came along.
    """

    def __init__(
        self,
        models: Sequence[Mapping[str, Any]] = (),
        scripts: Mapping[str, Sequence[Entry]] | None = None,
        *,
        running: Sequence[Mapping[str, Any]] = (),
        moved: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(scripts or {}, key=key)
        self._wanted, self._moved = key, moved
        self._documents = {"/v1/models": {"data": list(models)}, "/api/ps": {"models": list(running)}}
        self.asked: list[tuple[str, str | None]] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        if not head.startswith(b"GET "):
            await super()._serve(_Read(head, reader), writer)  # type: ignore[arg-type]
            return
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        path, key = lines[0].split()[1], headers.get("authorization")
        self.asked.append((path, key))
        status, document, more = 200, self._documents.get(path), ""
        if self._moved is not None:
            status, more = 302, f"location: {self._moved}\r\n"
        elif self._wanted is not None and key != f"Bearer {self._wanted}":
            status, document = 401, {"error": {"message": f"wrong key {key}"}}
        elif document is None:
            status = 404
        body = json.dumps(document).encode()
        writer.write(f"HTTP/1.1 {status} Said\r\n{more}content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


def listed(*names: str, owner: str = "vllm", **more: Any) -> list[dict[str, Any]]:
    """Entries of a list of models."""
    return [{"id": name, "object": "model", "owned_by": owner, **more} for name in names]
