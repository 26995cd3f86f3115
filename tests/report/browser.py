"""A headless Chromium, driven by its DevTools protocol."""

import asyncio
import json
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress

from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
EXECUTABLE = next((path for path in map(shutil.which, NAMES) if path), None)
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "--remote-allow-origins=*"),
)
_PATIENCE = 60  # seconds


@contextmanager
def started(folder):
    """Start a browser with a profile in a folder; give the address of its DevTools."""
    process = subprocess.Popen(
        [EXECUTABLE, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        said = folder / "DevToolsActivePort"
        end = time.monotonic() + _PATIENCE
        while not (said.exists() and said.read_text().count("\n")):
            assert process.poll() is None, "the browser ended"
            assert time.monotonic() < end, "the browser did not start"
            time.sleep(0.05)
        port, path = said.read_text().split("\n")[:2]
        yield f"ws://127.0.0.1:{port}{path}"
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


class Page:
    """A page of a browser; without a network."""

    def __init__(self, socket):
        self.socket, self.session, self.number = socket, None, 0
        self.events = []

    @classmethod
    async def opened(cls, address, width, height):
        self = cls(await websocket_connect(HTTPRequest(address), max_message_size=2**28))
        target = await self.send("Target.createTarget", url="about:blank")
        attached = await self.send(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")
        # Of the processor, whatever else the machine does.
        await self.send("Performance.enable", timeDomain="threadTicks")
        await self.send(
            "Network.emulateNetworkConditions",
            offline=True, latency=0, downloadThroughput=0, uploadThroughput=0,
        )  # fmt: skip
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        return self

    async def send(self, method, **params):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        await self.socket.write_message(json.dumps(message))
        while True:
            text = await asyncio.wait_for(self.socket.read_message(), _PATIENCE)
            assert text is not None, "the browser has gone"
            answer = json.loads(text)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    async def run(self, expression):
        """Evaluate JavaScript, which may be a promise."""
        answer = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def seconds(self):
        """Seconds of the processor that the thread of the page has had."""
        metrics = (await self.send("Performance.getMetrics"))["metrics"]
        (seconds,) = [one["value"] for one in metrics if one["name"] == "TaskDuration"]
        return seconds

    async def visit(self, url):
        """Go to a page, wait until it is drawn, and return the seconds that this took."""
        await self.send("Page.navigate", url=url)
        end = time.monotonic() + _PATIENCE
        while not await self.run("document.documentElement?.dataset.ready === 'true'"):
            assert time.monotonic() < end, self.complaints()
            await asyncio.sleep(0.02)
        return await self.run(
            """(async () => {
                const near = () => [...document.querySelectorAll(".chart")].filter((chart) => {
                    const box = chart.getBoundingClientRect();
                    return box.top < innerHeight + 100 && box.bottom > 0 && box.width > 0;
                });
                while (!near().every((chart) => chart.classList.contains("drawn")))
                    await new Promise((resolve) => setTimeout(resolve, 10));
                return performance.now() / 1000;
            })()"""
        )

    def complaints(self):
        """Errors and warnings of the console, exceptions, and whatever was asked of a network."""
        said = []
        for event in self.events:
            method, params = event.get("method", ""), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                said.append(params["exceptionDetails"].get("text"))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                said.append(str([one.get("value") for one in params["args"]]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                said.append(params["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:", "blob:")):
                    said.append(url)
        return said


def browse(address, width, height, visit):
    """Run an asynchronous function of a new page, and return what it returns."""

    async def all_of_it():
        page = await Page.opened(address, width, height)
        try:
            return await visit(page)
        finally:
            page.socket.close()

    return asyncio.run(all_of_it())
