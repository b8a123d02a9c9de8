"""A headless Chromium for the tests of pages: goes somewhere, runs a script there, takes a picture."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from tests.patience import HANG_S

STEP_S = 0.05


def _found() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


# In CI there must be one: the test then runs, and fails.
missing = pytest.mark.skipif(
    _found() is None and not os.environ.get("CI"),
    reason="no Chromium here: apt-get install chromium to have the pages tested",
)


class Browser:
    """One page of a browser, spoken to over its debugging port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        path = _found()
        assert path is not None, "no Chromium here: see .ci/run"
        self._process = subprocess.Popen(
            [
                path,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-features=LocalNetworkAccessChecks",
                "--remote-debugging-port=0",
                "--remote-allow-origins=*",
                "--window-size=1280,1000",
                f"--user-data-dir={folder / 'chromium'}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession()
        try:
            address = await until(self._page, "Chromium's page")
            self._socket = await self._http.ws_connect(address, max_msg_size=0)
            await self.call("Page.enable")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _page(self) -> str | None:
        """The address of its page, once there is one."""
        told = self._folder / "chromium" / "DevToolsActivePort"
        if not told.exists() or "\n" not in told.read_text():
            return None
        port = told.read_text().splitlines()[0]
        async with self._http.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [each for each in await answer.json() if each["type"] == "page"]
        return pages[0]["webSocketDebuggerUrl"] if pages else None

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def call(self, method: str, **parameters: Any) -> Any:
        """One command of the browser's debugging protocol, and its answer."""
        self._number += 1
        await self._socket.send_str(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            found = json.loads(await asyncio.wait_for(self._socket.receive_str(), HANG_S))
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]

    async def open(self, url: str) -> None:
        told = await self.call("Page.navigate", url=url)
        assert "errorText" not in told, told
        await until(lambda: self.run("document.readyState === 'complete'"), f"{url} to load")

    async def run(self, script: str, **where: Any) -> Any:
        """What an expression comes to in the page."""
        told = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, **where
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def see(self, script: str) -> Any:
        """What an expression comes to, once that is true."""
        try:
            return await until(lambda: self.run(script), script)
        except AssertionError as error:
            shown = await self.run("document.body.innerText")
            raise AssertionError(f"{error}; the page shows: {shown}") from error

    async def see_in_frame(self, url: str, script: str) -> Any:
        """As ``see``, in the frame that shows ``url``; nothing is seen in one that was not let load."""

        async def look() -> Any:
            tree = (await self.call("Page.getFrameTree"))["frameTree"]
            for each in tree.get("childFrames", ()):
                if each["frame"]["url"] == url:
                    world = await self.call("Page.createIsolatedWorld", frameId=each["frame"]["id"])
                    return await self.run(script, contextId=world["executionContextId"])
            return None

        return await until(look, f"{script} in the frame of {url}")

    async def picture(self) -> bytes:
        """What is to be seen, as PNG."""
        told = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(told["data"])


async def until(what: Callable[[], Awaitable[Any]], said: str) -> Any:
    """What comes of asking again and again, once it is true."""
    ends_s = time.monotonic() + HANG_S
    while not (found := await what()):
        assert time.monotonic() < ends_s, said
        await asyncio.sleep(STEP_S)
    return found
