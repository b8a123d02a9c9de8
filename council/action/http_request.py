"""The tool ``http.request``: one request to a host of a list, at an address that was checked, with no redirect."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from council.action.command import known_keys
from council.action.tool import OUTSIDE, ArgumentsRefused, Operation, Safety, ToolResult

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
URL_CHARS_MAX, BODY_CHARS_MAX, HEADERS_MAX = 4_096, 2**20, 32
# The journal keeps arguments in clear for ever, and results go to sinks: neither may hold these.
SECRET_HEADERS = ("authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key", "x-auth-token")
_OURS = ("host", "content-length", "transfer-encoding", "connection", "expect", "upgrade")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
# The addresses of the IPv6 internet; those of gateways (NAT64), old sites and IPv4 in IPv6 are outside.
_UNICAST = ipaddress.ip_network("2000::/3")
_PROTOCOL = ipaddress.ip_network("192.0.0.0/24")  # of protocols, not of hosts


class HttpRequest:
    """``{"method": "POST", "url": "https://host/path", "headers": {…}, "body": "text"}``.

    ``hosts`` are names, each with a port where it is not the scheme's own ('api.example.com', 'localhost:8080').
    Addresses that are not public are refused, unless ``private`` is true.
    """

    name = "http.request"
    safety: Safety = "MIXED"
    operations: tuple[Operation, ...] = ("read", "write", "delete", "modify")

    def __init__(self, hosts: tuple[str, ...], *, private: bool = False, bytes_max: int = 2**20) -> None:
        self._hosts, self._private, self._bytes_max = frozenset(map(str.lower, hosts)), private, bytes_max

    def check(self, args: Mapping[str, Any]) -> None:
        known_keys(self.name, args, ("method", "url"), ("headers", "body"))
        if args["method"] not in METHODS:
            raise ArgumentsRefused.at(
                self.name, "method", repr(args["method"])[:80], f"one of {', '.join(METHODS)}"
            )
        self._place(args["url"])
        headers = args.get("headers", {})
        if not isinstance(headers, dict) or len(headers) > HEADERS_MAX:
            raise ArgumentsRefused.at(
                self.name, "headers", "another value", f"up to {HEADERS_MAX} names and texts"
            )
        for name, value in headers.items():
            at = f"headers.{name[:80]}"
            if not name or not _NAME.issuperset(name) or name.lower() in _OURS:
                raise ArgumentsRefused.at(
                    self.name, at, "this name", "a header that the request does not set itself"
                )
            if name.lower() in SECRET_HEADERS:
                raise ArgumentsRefused.at(
                    self.name, at, "a secret", "no secret: the journal keeps arguments in clear"
                )
            if not isinstance(value, str) or not value.isprintable() or not value.isascii():
                raise ArgumentsRefused.at(self.name, at, "another value", "a line of printable ASCII")
        body = args.get("body", "")
        if not isinstance(body, str) or len(body) > BODY_CHARS_MAX:
            raise ArgumentsRefused.at(
                self.name, "body", "another value", f"a text up to {BODY_CHARS_MAX:,} characters"
            )

    def _place(self, url: object) -> tuple[str, str, int, str]:
        """Scheme, host, port and target."""
        expected = "http://… or https://… in printable ASCII, without name, password and fragment"
        if not isinstance(url, str) or len(url) > URL_CHARS_MAX or not url.isascii() or not url.isprintable():
            raise ArgumentsRefused.at(self.name, "url", f"a value of type {type(url).__name__}", expected)
        try:
            parts = urlsplit(url)
            host, given = (parts.hostname or "").lower(), parts.port
        except ValueError as error:
            raise ArgumentsRefused.at(self.name, "url", str(error), expected) from error
        if (
            parts.scheme not in ("http", "https")
            or not host
            or "@" in parts.netloc
            or "#" in url
            or " " in url
        ):
            raise ArgumentsRefused.at(self.name, "url", repr(url[:200]), expected)
        usual = 443 if parts.scheme == "https" else 80
        port = usual if given is None else given
        wanted = host if port == usual else f"{host}:{port}"
        if wanted not in self._hosts:
            known = ", ".join(sorted(self._hosts)) or "none"
            raise ArgumentsRefused.at(
                self.name, "url", f"the host {wanted}", f"one of hosts under [action]: {known}"
            )
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return parts.scheme, host, port, target

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        scheme, host, port, _ = self._place(args["url"])
        return (f"{scheme}://{host}:{port}",)

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        began = time.monotonic()
        output, error, is_cut, ok = "", "", False, False
        try:
            status, output, is_cut = self._exchange(args, began + timeout_s)
            ok = 200 <= status < 300
            error = (
                ""
                if ok
                else f"the server answered {status}" + (" (not followed)" if 300 <= status < 400 else "")
            )
        except (OSError, http.client.HTTPException) as failed:
            failure = TimeoutError("the time is up") if time.monotonic() >= began + timeout_s else failed
            error = f"no whole answer: {type(failure).__name__}: {failure}"
        return ToolResult(ok, output, error, None, OUTSIDE, time.monotonic() - began, is_cut)

    def _exchange(self, args: Mapping[str, Any], deadline: float) -> tuple[int, str, bool]:
        scheme, host, port, target = self._place(args["url"])
        connection = http.client.HTTPConnection(host, port)
        link = socket.create_connection((self._address(host, port), port), _left(deadline))
        # The timeout of a socket begins again with each byte: a slow answer is cut off as a whole.
        held = link.dup()
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), _cut_off, [held])
        timer.daemon = True
        timer.start()
        try:
            if scheme == "https":
                link = ssl.create_default_context().wrap_socket(link, server_hostname=host)
            connection.sock = link
            body = args["body"].encode() if "body" in args else None
            link.settimeout(_left(deadline))
            connection.request(
                args["method"], target, body, {"Connection": "close", **args.get("headers", {})}
            )
            link.settimeout(_left(deadline))
            answer = connection.getresponse()
            content = b""
            while len(content) <= self._bytes_max:
                link.settimeout(_left(deadline))
                if not (chunk := answer.read1(65_536)):
                    break
                content += chunk
            if answer.length and len(content) <= self._bytes_max:
                raise http.client.IncompleteRead(content, answer.length)
            _left(deadline)
        finally:
            timer.cancel()
            timer.join()
            held.close()
            link.close()
        shown = {
            name: "[redacted]" if name.lower() in SECRET_HEADERS else value
            for name, value in answer.getheaders()
        }
        text = content[: self._bytes_max].decode("utf-8", "replace")
        told = json.dumps({"status": answer.status, "headers": shown, "body": text}, ensure_ascii=False)
        return answer.status, told, len(content) > self._bytes_max

    def _address(self, host: str, port: int) -> str:
        """The address to connect to; all of the host's are checked, so that the name can't mean another one later."""
        found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        for each in found:
            if not self._private and not _is_public(each.split("%")[0]):
                raise OSError(
                    f"{host} has the address {each}, which is not public; the settings forbid those"
                )
        return found[0]

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        return ""


def _is_public(text: str) -> bool:
    """Whether it is a public unicast address. An IPv6 address that carries an IPv4 address is not."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address not in _PROTOCOL
    return address in _UNICAST and not address.sixtofour


def _cut_off(link: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the server has closed it
        link.shutdown(socket.SHUT_RDWR)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is up")
    return left
