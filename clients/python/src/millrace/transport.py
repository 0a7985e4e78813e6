"""How a router is asked: HTTP over its Unix socket, or over TLS."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping
from urllib.parse import quote, urlencode, urlsplit

SOCKET = "/run/millrace/millrace.sock"
PORT = 8443


class Problem(Exception):
    """Why something was not done (RFC 9457)."""

    def __init__(self, status: int, body: Mapping[str, Any]):
        self.status = status
        self.body = body
        self.detail: str = body.get("detail", f"the router answers {status}")
        self.errors: list[dict[str, Any]] = body.get("errors", [])
        """Of a list, the first entries that are wrong: `entry`, from 0, and `detail`."""
        self.needs: str | None = body.get("needs")
        """The role that is needed."""
        self.current: Any = body.get("current")
        """What is there, where something else was expected."""
        super().__init__(f"{status}: {self.detail}")


@dataclass(frozen=True)
class Event:
    """A message of a stream."""

    id: int | None
    kind: str
    data: Any


@dataclass(frozen=True)
class Answer:
    """An answer as it came."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: Any

    @property
    def tag(self) -> str | None:
        """What `if_match` takes to change only what was read here."""
        return self.headers.get("etag")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None):
        super().__init__("millrace", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Transport:
    """A router, asked by one connection for each request, so that threads may share it."""

    def __init__(
        self,
        place: str | None = None,
        *,
        token: str | None = None,
        ca: str | None = None,
        fingerprint: str | None = None,
        timeout: float | None = 120,
    ):
        """`place` is the path of a Unix socket, or `https://HOST:PORT`. Without it the environment's `MILLRACE_SOCKET` counts, as for the
        command line, and then `/run/millrace/millrace.sock`. Over TLS a `token` is needed. `ca`, a file of certificates, or `fingerprint`,
        the SHA-256 of the router's, says by what the router is known. Without either the machine's trusted certificates count.
        """
        place = place or os.environ.get("MILLRACE_SOCKET") or SOCKET
        self._place = place
        self._token = token
        self._timeout = timeout
        self._fingerprint = fingerprint and fingerprint.replace(":", "").lower()
        self._tls: ssl.SSLContext | None = None
        if "://" in place:
            parts = urlsplit(place)
            if parts.scheme != "https" or not parts.hostname:
                raise ValueError(f"{place!r}: give the path of a socket, or https://HOST:PORT")
            self._tls = ssl.create_default_context(cafile=ca)
            if fingerprint:
                self._tls.check_hostname = False
                self._tls.verify_mode = ssl.CERT_NONE

    def _connect(self, timeout: float | None) -> http.client.HTTPConnection:
        if self._tls is None:
            return _UnixConnection(self._place, timeout)
        parts = urlsplit(self._place)
        host, port = parts.hostname or "", parts.port or PORT
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        connection.connect()
        if self._fingerprint:
            found = hashlib.sha256(connection.sock.getpeercert(True) or b"").hexdigest()
            if found != self._fingerprint:
                connection.close()
                raise ssl.SSLError(f"the router's certificate has another fingerprint: {found}")
        return connection

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
    ) -> http.client.HTTPResponse:
        """Sends a request, and returns the answer after its head. At most `patience` seconds may pass between two pieces."""
        said = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(said)}" if said else path
        all_headers = {"Accept": "application/json", **(headers or {})}
        if self._token:
            all_headers["Authorization"] = f"Bearer {self._token}"
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            all_headers["Content-Type"] = "application/json"
        connection = self._connect(self._timeout)
        connection.request(method, target, content, all_headers)
        reads = connection.sock
        response = connection.getresponse()
        if response.status < 300:
            reads.settimeout(patience)
            return response
        text = response.read()
        connection.close()
        try:
            problem = json.loads(text)
        except ValueError:
            problem = {}
        raise Problem(response.status, problem)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        if_match: str | None = None,
    ) -> Answer:
        """Asks for anything; the answer with its headers. Raises `Problem`."""
        headers = {"If-Match": if_match} if if_match else {}
        with self._send(method, path, query, body, headers, self._timeout) as response:
            content = response.read()
            named = {name.lower(): value for name, value in response.headers.items()}
        is_json = "json" in named.get("content-type", "")
        return Answer(response.status, named, json.loads(content) if is_json else content.decode())

    def json(self, method: str, path: str, **asked: Any) -> Any:
        return self.request(method, path, **asked).body

    def text(self, method: str, path: str, **asked: Any) -> str:
        return self.request(method, path, **asked).body

    def pieces(self, method: str, path: str, *, query: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        """Streams an answer, piece by piece."""
        with self._send(method, path, query, headers={"Accept": "*/*"}, patience=None) as response:
            while piece := response.read1(65_536):
                yield piece

    def events(
        self, path: str, *, query: Mapping[str, Any] | None = None, last_event_id: int | None = None
    ) -> Iterator[Event]:
        """Server-sent events, as they come."""
        headers = {"Accept": "text/event-stream"}
        # The router sends a comment every 15 s.
        patience = self._timeout and max(self._timeout, 30)
        if last_event_id is not None:
            headers["Last-Event-ID"] = str(last_event_id)
        number, kind, data = None, "message", []
        with self._send("GET", path, query, headers=headers, patience=patience) as response:
            for line in response:
                name, _, value = line.decode().rstrip("\r\n").partition(":")
                value = value.removeprefix(" ")
                if name == "id":
                    number = int(value) if value.isdigit() else None
                elif name == "event":
                    kind = value
                elif name == "data":
                    data.append(value)
                elif not name and not value and data:
                    yield Event(number, kind, json.loads("\n".join(data)))
                    kind, data = "message", []

    def pages(self, path: str, *, limit: int = 1000, query: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """The entries of a long list, which is read page by page: `router.pages("/routes")`."""
        answer = self.request("GET", path, query={**(query or {}), "limit": limit})
        while True:
            yield from answer.body
            target, _, kind = answer.headers.get("link", "").partition("; ")
            if kind != 'rel="next"':
                return
            answer = self.request("GET", target.strip("<>"))

    @staticmethod
    def segment(value: Any) -> str:
        """A name as a part of a path."""
        return quote(str(value), safe="")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
