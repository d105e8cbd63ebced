"""A small web service and its clients: some log in, others look at profiles. Why do profiles take so long?

The answer is in the tutorial (docs/tutorial.md), which measures this program, finds what is wrong with it, and mends it.

    scope-profiler run --track-async -o before.h5 login_service.py
"""

import asyncio
import hashlib
import json
import sqlite3
import time

from scope_profiler import profile, region

USERS = [f"user{number}" for number in range(50)]


def hash_password(password: str) -> bytes:
    """Slow on purpose, like every good hash of passwords."""
    with region("hash password"):
        return hashlib.scrypt(password.encode(), salt=b"a salt", n=2**14, r=8, p=1)


class Service:
    """HTTP/1.1 on the loopback interface, one request a connection, users in an SQLite database."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE users (name TEXT PRIMARY KEY, password BLOB, city TEXT)")
        password = hash_password("secret")
        self.database.executemany("INSERT INTO users VALUES (?, ?, ?)", [(user, password, "Vienna") for user in USERS])

    def find(self, user: str) -> tuple[bytes, str]:
        with region("find user"):
            query = "SELECT password, city FROM users WHERE name = ?"
            found: tuple[bytes, str] = self.database.execute(query, (user,)).fetchone()
            return found

    @profile("/login")
    async def login(self, user: str) -> dict[str, object]:
        expected, _ = self.find(user)
        given = hash_password("secret")
        return {"user": user, "welcome": given == expected}

    @profile("/profile")
    async def profile(self, user: str) -> dict[str, object]:
        _, city = self.find(user)
        return {"user": user, "city": city}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, path, _ = (await reader.readline()).decode().split()
        _, page, user = path.split("/")
        answer = await (self.login(user) if page == "login" else self.profile(user))
        body = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()


async def get(port: int, path: str) -> float:
    """Fetch a page; returns how long that took, in seconds."""
    start = time.perf_counter()
    with region("client: " + path.split("/")[1]):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        await reader.read()
        writer.close()
    return time.perf_counter() - start


async def visit(port: int, page: str, times: int) -> list[float]:
    """What one client does."""
    return [await get(port, f"/{page}/{USERS[number % len(USERS)]}") for number in range(times)]


async def main() -> None:
    service = Service()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    visits = [("login", 10)] * 4 + [("profile", 40)] * 4
    tasks = [asyncio.create_task(visit(port, page, times), name=f"{page} {i}") for i, (page, times) in enumerate(visits)]
    seconds = [await task for task in tasks]
    profiles = [1000 * one for took in seconds[4:] for one in took]
    print(f"{len(profiles)} profiles, {sum(profiles) / len(profiles):.1f} ms on average, {max(profiles):.1f} ms at most")
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
