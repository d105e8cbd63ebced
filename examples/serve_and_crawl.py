"""Serve the standard library's source as web pages and crawl them, both in one process, and see what awaits what.

An asyncio server on the loopback interface turns source files into pages with links; a thread pool behind it reads and renders
them. A crawler with many worker tasks follows the links until it has seen enough pages. All of it is one profile: the regions
show how much of each step is running and how much awaiting, the task table which tasks held the thread, the thread table what
the pool did meanwhile.

    python examples/serve_and_crawl.py                    # 400 pages, 24 crawling tasks
    python examples/serve_and_crawl.py --pages 100 --tasks 8
    scope-profiler inspect serve_and_crawl.h5             # afterwards
"""

from __future__ import annotations

import argparse
import asyncio
import html
import os
import re
import sysconfig
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, unquote

import scope_profiler as sp

ROOT = Path(sysconfig.get_path("stdlib"))
LINK = re.compile(rb'href="([^"]+)"')
WORD = re.compile(rb"[A-Za-z_]{3,}")


# -- the server --------------------------------------------------------------------------------------------------------


def read_page(path: Path) -> bytes:
    """The page for a file or directory below the library's root; runs on a pool thread."""
    with sp.region("read"):
        if path.is_dir():
            names = sorted(p.name for p in path.iterdir() if p.is_dir() or p.suffix == ".py")
            text = ""
        else:
            names = []
            text = path.read_text(encoding="utf-8", errors="replace")
    with sp.region("render"):
        base = "/" + quote(str(path.relative_to(ROOT)))
        links = "".join(f'<li><a href="{base}/{quote(name)}">{html.escape(name)}</a></li>' for name in names)
        return f"<!doctype html><h1>{html.escape(path.name)}</h1><ul>{links}</ul><pre>{html.escape(text)}</pre>".encode()


class Server:
    """HTTP/1.1, GET only, one request a connection."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self.port = 0

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with sp.region("serve"):
            request = await reader.readline()
            while await reader.readline() not in (b"\r\n", b""):
                pass
            status, body = await self._answer(unquote(request.split()[1].decode()))
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
            writer.write(body)
            with sp.region("send"):
                await writer.drain()
            writer.close()

    async def _answer(self, url: str) -> tuple[str, bytes]:
        path = (ROOT / url.strip("/")).resolve()
        if not path.is_relative_to(ROOT.resolve()) or not path.exists():
            return "404 Not Found", b"not found"
        with sp.region("wait for the pool"):
            body = await asyncio.get_running_loop().run_in_executor(self._pool, read_page, path)
        return "200 OK", body


# -- the crawler -------------------------------------------------------------------------------------------------------


class Crawler:
    """Worker tasks that take addresses from one queue and put the links they find back into it."""

    def __init__(self, port: int, pages: int) -> None:
        self._port = port
        self._pages = pages
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._seen: set[str] = set()
        self.fetched = 0
        self.bytes = 0
        self.words: Counter[bytes] = Counter()

    def add(self, url: str) -> None:
        """Crawl this page too, unless it is known or there are enough."""
        if url not in self._seen and len(self._seen) < self._pages:
            self._seen.add(url)
            self._queue.put_nowait(url)

    async def crawl(self, tasks: int) -> None:
        """Fetch pages with this many tasks until no address is left."""
        workers = [asyncio.create_task(self._work(), name=f"crawler-{number}") for number in range(tasks)]
        await self._queue.join()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            with sp.region("wait for an address"):
                url = await self._queue.get()
            try:
                await self._page(url)
            finally:
                self._queue.task_done()

    @sp.profile("page")
    async def _page(self, url: str) -> None:
        body = await self._fetch(url)
        with sp.region("parse"):
            for link in LINK.findall(body):
                self.add(link.decode())
            self.words.update(WORD.findall(body))
        self.fetched += 1
        self.bytes += len(body)

    @sp.profile("fetch")
    async def _fetch(self, url: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"GET {url} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        head, _, body = answer.partition(b"\r\n\r\n")
        return body if b" 200 " in head.split(b"\r\n", 1)[0] else b""


# -- both together, profiled -------------------------------------------------------------------------------------------


async def run(pages: int, tasks: int, threads: int) -> Crawler:
    """Serve and crawl."""
    with ThreadPoolExecutor(threads, thread_name_prefix="pool") as pool:
        async with Server(pool) as server:
            crawler = Crawler(server.port, pages)
            crawler.add("/")
            await crawler.crawl(tasks)
            return crawler


def print_regions(results: sp.ProfilingResults) -> None:
    """Wall time of each region, and how much of it was spent awaiting."""
    print(f"\n  {'region':<22}{'calls':>7}{'wall [s]':>11}{'running [s]':>13}{'awaiting [s]':>14}")
    rows = []
    for name in results.region_names:
        region = results[name][0]
        awaiting = region.total_await_duration or 0.0
        rows.append((region.total_duration, name, region.num_calls, awaiting))
    for wall, name, calls, awaiting in sorted(rows, reverse=True):
        print(f"  {name:<22}{calls:>7}{wall:>11.4f}{wall - awaiting:>13.4f}{awaiting:>14.4f}")


def print_tasks(results: sp.ProfilingResults, top: int) -> None:
    """The tasks that held the thread longest."""
    print(f"\n  {'busiest tasks':<22}{'steps':>7}{'wall [s]':>11}{'running [s]':>13}{'awaiting [s]':>14}")
    for task in sorted(results.tasks[0], key=lambda t: -t.running_time)[:top]:
        wall = task.wall_time or 0.0
        print(f"  {task.name:<22}{task.steps:>7}{wall:>11.4f}{task.running_time:>13.4f}{task.awaiting_time:>14.4f}")


def main() -> None:
    """Parse the command line, serve, crawl, show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=400, help="stop after this many pages (default: 400)")
    parser.add_argument("--tasks", type=int, default=24, help="crawling tasks (default: 24)")
    parser.add_argument("--threads", type=int, default=min(4, os.cpu_count() or 1), help="threads of the server's pool")
    parser.add_argument("-o", "--output", default="serve_and_crawl.h5", help="the profile (default: %(default)s)")
    arguments = parser.parse_args()
    with sp.session(track_async=True, output=arguments.output, return_results=True) as session:
        crawler = asyncio.run(run(arguments.pages, arguments.tasks, arguments.threads))
    results = session.results
    assert results is not None  # asked for by return_results
    common = ", ".join(word.decode() for word, _ in crawler.words.most_common(5))
    print(f"  {crawler.fetched} pages, {crawler.bytes / 1e6:.1f} MB; the most frequent words: {common}")
    print_regions(results)
    print_tasks(results, 8)


if __name__ == "__main__":
    main()
