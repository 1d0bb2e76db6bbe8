"""An object store on this machine: the part of S3's interface that a Delta table needs, in the memory of a process.

Source: Amazon's S3 API reference; conditional writes (``If-None-Match: *``), on which a Delta log depends.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree
from xml.sax.saxutils import escape

BUCKET = "bucket"
#: Keys without an object: requests of a test to control and inspect the store. They have no faults.
_LOSE, _SIZES, _READS, _FAULTS, _RAW = "-/lose", "-/sizes", "-/reads", "-/faults", "-/raw/"
_REQUESTS = "-/requests"
#: The faults of requests. ``errors``: the response is an error, and the request has no effect. ``slow``: the request takes effect
#: after a pause, which is longer than the timeout of clients. ``lost``: the request takes effect, and its
#: connection breaks without a response.
FAULTS = ("errors", "slow", "lost")
#: Longer than the request timeout of Amazon's client, which is 3 s.
_SLOW_S = 4.0


class StoreFaults:
    """Decides which requests of a store have a fault, and counts them.

    >>> faults = StoreFaults()
    >>> faults.set("errors", share=1.0)
    >>> faults.next("PUT") in (500, 503), dict(faults.counts)
    (True, {'errors PUT': 1})
    """

    def __init__(self) -> None:
        self._mode, self._share = "", 0.0
        self._random, self._lock = random.Random(1), threading.Lock()
        #: The faults so far, by their name and the method of their request.
        self.counts: Counter[str] = Counter()

    def set(self, mode: str, share: float) -> None:
        """Begins a fault, or ends all faults.

        Args:
            mode: one of :data:`FAULTS`, or empty.
            share: the share of the requests that have it, from 0 to 1.
        """
        with self._lock:
            self._mode, self._share = mode, share

    def next(self, method: str) -> int | str:
        """The fault of a request: a status, ``slow``, ``lost``, or empty."""
        with self._lock:
            if not self._mode or self._random.random() >= self._share:
                return ""
            self.counts[f"{self._mode} {method}"] += 1
            return self._random.choice((500, 503)) if self._mode == "errors" else self._mode


class _Rejected(Exception):
    """The request has no effect, and its response is an error."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Store:
    """A bucket."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        #: Whether it ignores ``If-None-Match``, as some stores with this interface do.
        self.replaces = False
        #: When each object was written, in seconds since the epoch.
        self.written_s: dict[str, float] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        #: The requests that read each object.
        self.reads: Counter[str] = Counter()
        #: All requests, by their method.
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()
        #: A suffix of keys. Writes to these keys succeed, and their responses are lost.
        self.lose_answers_for: str | None = None

    def put(self, key: str, body: bytes, *, only_new: bool) -> int:
        """Writes an object; returns the status."""
        with self.lock:
            if only_new and key in self.objects and not self.replaces:
                return 412
            self.objects[key] = body
            self.written_s[key] = time.time()
        return 500 if self.lose_answers_for and key.endswith(self.lose_answers_for) else 200

    def modified(self, key: str) -> str:
        """When an object was written, as in a list of objects."""
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.written_s.get(key, 0.0)))

    def listed(self, prefix: str, delimiter: str, after: str) -> str:
        """The response to ListObjectsV2."""
        with self.lock:
            found = sorted((key, body) for key, body in self.objects.items() if key.startswith(prefix) and key > after)
        folders, contents = dict[str, None](), ""
        for key, body in found:
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders[prefix + rest.split(delimiter)[0] + delimiter] = None
            else:
                contents += (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{self.modified(key)}</LastModified>"
                    f"<ETag>{_etag(body)}</ETag><Size>{len(body)}</Size></Contents>"
                )
        contents += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        return (
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(found)}</KeyCount>"
            f"<MaxKeys>100000</MaxKeys><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
        )


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _joined_chunks(chunked: BufferedIOBase) -> bytes:
    """The content of a chunked request. Amazon's clients also encode its content in chunks, with a checksum at the end."""
    content = b""
    while size := int(chunked.readline().split(b";")[0], 16):
        content += chunked.read(size)
        chunked.readline()
    # Trailers end with an empty line.
    while chunked.readline().strip():
        continue
    return content


def _with_faults(serve: Callable[[_Handler], None]) -> Callable[[_Handler], None]:
    def served(self: _Handler) -> None:
        # A connection has several requests.
        self.fault = ""
        try:
            serve(self)
        except _Rejected as e:
            self._answer(e.status, "<Error><Code>InternalError</Code></Error>")

    return served


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Each response is sent immediately and completely.
    wbufsize = -1
    disable_nagle_algorithm = True
    store, faults = _Store(), StoreFaults()
    latency_s = 0.0
    #: The fault of the request.
    fault: int | str = ""

    def log_message(self, format: str, *args: Any) -> None:
        """Disables the log."""

    def handle_expect_100(self) -> bool:
        """Accepts the content of a request immediately. Otherwise Amazon's client waits a second before it sends it."""
        accepts = super().handle_expect_100()
        self.wfile.flush()
        return accepts

    def _request(self) -> tuple[str, dict[str, str], bytes]:
        time.sleep(self.latency_s)
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = _joined_chunks(self.rfile)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" in (self.headers.get("Content-Encoding") or ""):
            body = _joined_chunks(io.BytesIO(body))
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if not key.startswith("-/"):
            with self.store.lock:
                self.store.requests[self.command] += 1
            self.fault = self.faults.next(self.command)
            if isinstance(self.fault, int):
                status, self.fault = self.fault, ""
                raise _Rejected(status)
            # A client that does not wait sends the request again, before this one takes effect.
            time.sleep(_SLOW_S if self.fault == "slow" else 0)
        return key, query, body

    def _answer(self, status: int, body: str | bytes = b"", **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        if self.fault == "lost":
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("content_length", str(len(data))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _get(self) -> None:
        key, query, _ = self._request()
        if key == _SIZES:
            self._answer(200, json.dumps({name: len(body) for name, body in self.store.objects.items()}))
            return
        counts = {_READS: self.store.reads, _REQUESTS: self.store.requests, _FAULTS: self.faults.counts}
        if key in counts:
            self._answer(200, json.dumps(counts[key]))
            return
        if key.startswith(_RAW):
            raw = self.store.objects.get(key.removeprefix(_RAW))
            self._answer(200 if raw is not None else 404, raw or b"")
            return
        if "list-type" in query:
            names = ("prefix", "delimiter", "start-after")
            self._answer(200, self.store.listed(*(query.get(name, "") for name in names)))
            return
        with self.store.lock:
            self.store.reads[key] += 1
        body = self.store.objects.get(key)
        if body is None:
            self._answer(404, "<Error><Code>NoSuchKey</Code></Error>")
            return
        about = {"ETag": _etag(body), "Last_Modified": formatdate(self.store.written_s.get(key, 0.0), usegmt=True)}
        requested = self.headers.get("Range")
        if requested is None:
            self._answer(200, body, **about, content_length=str(len(body)))
            return
        first, last = requested.removeprefix("bytes=").split("-")
        begin = int(first) if first else len(body) - int(last)
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        self._answer(206, body[begin:end], **about, Content_Range=f"bytes {begin}-{end - 1}/{len(body)}")

    @_with_faults
    def do_GET(self) -> None:
        self._get()

    @_with_faults
    def do_HEAD(self) -> None:
        self._get()

    @_with_faults
    def do_PUT(self) -> None:
        key, query, body = self._request()
        if key == _LOSE:
            self.store.lose_answers_for = body.decode()
            self._answer(200)
            return
        if key == _FAULTS:
            self.faults.set(**json.loads(body))
            self._answer(200)
            return
        if "uploadId" in query:
            self.store.parts[query["uploadId"]][int(query["partNumber"])] = body
            self._answer(200, ETag=_etag(body))
            return
        if source := self.headers.get("x-amz-copy-source"):
            self._copy(unquote(source).removeprefix("/").removeprefix(f"{BUCKET}/"), key)
            return
        self._answer(self.store.put(key, body, only_new=self.headers.get("If-None-Match") == "*"), ETag=_etag(body))

    def _copy(self, source: str, key: str) -> None:
        """Hadoop renames a file by a copy."""
        body = self.store.objects.get(source)
        if body is None:
            self._answer(404, "<Error><Code>NoSuchKey</Code></Error>")
            return
        self.store.put(key, body, only_new=False)
        self._answer(200, f"<CopyObjectResult><ETag>{escape(_etag(body))}</ETag></CopyObjectResult>")

    @_with_faults
    def do_POST(self) -> None:
        key, query, body = self._request()
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self.store.parts[upload] = {}
            self._answer(
                200,
                f"<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key>"
                f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>",
            )
        elif "uploadId" in query:
            whole = b"".join(part for _, part in sorted(self.store.parts.pop(query["uploadId"]).items()))
            status = self.store.put(key, whole, only_new=self.headers.get("If-None-Match") == "*")
            self._answer(
                status,
                f"<CompleteMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key>"
                f"<ETag>{escape(_etag(whole))}</ETag></CompleteMultipartUploadResult>",
            )
        else:
            keys = [it.text or "" for it in ElementTree.fromstring(body).iter() if it.tag.endswith("Key")]
            for deleted in keys:
                self.store.objects.pop(deleted, None)
            found = "".join(f"<Deleted><Key>{escape(it)}</Key></Deleted>" for it in keys)
            self._answer(200, f"<DeleteResult>{found}</DeleteResult>")

    @_with_faults
    def do_DELETE(self) -> None:
        key, _, _ = self._request()
        self.store.objects.pop(key, None)
        self._answer(204)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Writes no error of a client that has closed its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def location_at(address: str, path: str) -> str:
    """The URI of a path in a store, by which Arrow reads it.

    Args:
        address: the host and port of the store.
        path: the path in the bucket.
    """
    return f"s3://hunter1:hunter2@{BUCKET}/{path}?scheme=http&region=nowhere&endpoint_override={address}"


class ObjectStore:
    """A store in a separate process, because deltalake can block the threads of this process while it waits for a
    response.

    Args:
        latency_ms: the delay of each response.
        replaces: whether it ignores ``If-None-Match``.
    """

    def __init__(self, latency_ms: int = 0, *, replaces: bool = False) -> None:
        command = [sys.executable, __file__, str(latency_ms), *(["replaces"] if replaces else [])]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self._address = f"127.0.0.1:{int(self._process.stdout.readline())}"
        self.url = f"http://{self._address}"

    def location(self, path: str) -> str:
        """The URI of a path by which Arrow reads it.

        Args:
            path: the path in the bucket.
        """
        return location_at(self._address, path)

    @property
    def storage_options(self) -> dict[str, str]:
        """The settings by which deltalake connects to it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "nowhere",
            "AWS_ACCESS_KEY_ID": "hunter1",
            "AWS_SECRET_ACCESS_KEY": "hunter2",
            "max_retries": "0",
        }

    def lose_answers_for(self, ending: str) -> None:
        """Writes to keys with this suffix succeed, and their responses are an error."""
        urlopen(Request(f"{self.url}/{_LOSE}", ending.encode(), method="PUT")).close()

    def set_faults(self, mode: str, share: float) -> None:
        """See :meth:`StoreFaults.set`."""
        body = json.dumps({"mode": mode, "share": share}).encode()
        urlopen(Request(f"{self.url}/{_FAULTS}", body, method="PUT")).close()

    @property
    def faults(self) -> dict[str, int]:
        """See :attr:`StoreFaults.counts`."""
        return self._counts(_FAULTS)

    def content(self, key: str) -> bytes:
        """An object. No fault hits this request."""
        with urlopen(f"{self.url}/{_RAW}{quote(key)}") as answer:
            return bytes(answer.read())

    @property
    def sizes(self) -> dict[str, int]:
        """The size of every object, in bytes."""
        return self._counts(_SIZES)

    @property
    def reads(self) -> dict[str, int]:
        """The number of requests that have read each object. Arrow requests its size before its content."""
        return self._counts(_READS)

    @property
    def requests(self) -> dict[str, int]:
        """The number of requests of each method."""
        return self._counts(_REQUESTS)

    def _counts(self, key: str) -> dict[str, int]:
        with urlopen(f"{self.url}/{key}") as answer:
            found: dict[str, int] = json.load(answer)
            return found

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


if __name__ == "__main__":
    _Handler.latency_s = int(sys.argv[1]) / 1000
    _Handler.store.replaces = "replaces" in sys.argv[2:]
    server = _Server(("127.0.0.1", 0), _Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
