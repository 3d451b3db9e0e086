"""The MCP server over streamable HTTP, for clients that cannot start a process.

There is no login: whoever reaches the port reads and writes the memory. So it listens on the loopback interface unless
it is told otherwise, and it checks Host and Origin, so that a web page the user visits cannot reach it through a name
that points to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Callable, Iterator, Sequence

from holdtrue.errors import HoldTrueError, InvalidInput
from holdtrue.lifetime import Lifetime
from holdtrue.mcp_server import MemoryService, build, log_to_stderr, run_to_the_end

PATH = "/mcp"


class AddressRefused(InvalidInput):
    code = "ADDRESS_REFUSED"
    default_hint = "Use 127.0.0.1, or say --allow-remote if everyone who reaches this address may use the memory."


class AddressUnavailable(HoldTrueError):
    code = "ADDRESS_UNAVAILABLE"
    exit_code = 1
    default_hint = "Choose another port; 0 takes any free one."


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `[IPv6]:PORT`, `:PORT` or `PORT`. Raises `InvalidInput`."""
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidInput(f"{text[:100]!r} is not an address.", hint="Write HOST:PORT, for example 127.0.0.1:8765.")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host. A name counts only if it is `localhost`: others may be re-pointed."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def serve_http(
    store: str | None,
    address: str,
    *,
    allow_remote: bool = False,
    allow_hosts: Sequence[str] = (),
    on_listening: Callable[[str], object] | None = None,
) -> None:
    """Serve any number of clients until a signal. Does not return once it listens: the process ends.

    `on_listening` gets the URL. Raises `InvalidInput`, `AddressRefused` or `AddressUnavailable` before that.
    """
    host, port = parse_address(address)
    if not is_loopback(host) and not allow_remote:
        raise AddressRefused(f"{host} can be reached from other machines.")
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    service = MemoryService(store)
    lifetime = Lifetime(service.close)
    lifetime.watch_signals()
    log_to_stderr()

    import anyio
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    shown = f"[{host}]" if ":" in host else host
    names = ["127.0.0.1", "localhost", "[::1]", shown, *allow_hosts]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
    app = build(service).streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=TransportSecuritySettings(
            allowed_hosts=[*names, *(f"{name}:*" for name in names)],
            allowed_origins=[*origins, *(f"{origin}:*" for origin in origins)],
        ),
    )

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the process' own handlers end it in a bounded time, with streams of clients still open

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            url = f"http://{shown}:{port}{PATH}"
            if on_listening is not None:
                on_listening(url)
            service.prepare()

    server = Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))

    async def session() -> None:
        await server.serve(sockets=[listening])

    run_to_the_end(anyio.run, session, lifetime)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, UnicodeError) as error:
        listening.close()
        raise AddressUnavailable(f"Cannot listen on {host}:{port}: {error}.") from error
    return listening
