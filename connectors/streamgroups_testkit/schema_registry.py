"""A schema registry for tests: the part of Confluent's REST API that clients of Avro, Protobuf and JSON Schema use.

``FakeSchemaRegistry`` is an HTTP server in the process of the test, with schemas in memory. It can be stopped and can
reject requests. The contract tests of this library compare it with a real registry. Source: Confluent's "Schema Registry API
Reference".
"""

from __future__ import annotations

import base64
import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_JSON = "application/vnd.schemaregistry.v1+json"
_MAX_INTEGER = 2**31 - 1


class FakeSchemaRegistry:
    """A registry on a port of 127.0.0.1, as a context manager.

    Args:
        login: ``user:password`` that each request must contain; ``None`` for no login.
        port: the port; 0 for a free one.

    >>> with FakeSchemaRegistry() as registry:
    ...     registry.add("flights-value", '"string"'), registry.url.startswith("http://127.0.0.1:")
    (1, True)
    """

    def __init__(self, login: str | None = None, *, port: int = 0) -> None:
        self._login = login
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        #: The requests so far, such as ``GET /schemas/ids/1``.
        self.requests: list[str] = []
        #: A status that each request is answered with, such as 503; ``None`` for real answers.
        self.fails_with: int | None = None
        #: A status and an error code that each request for an id is answered with; ``None`` for real answers.
        self.answers_ids_with: tuple[int, int] | None = None
        #: Subjects that accept no further schema (409).
        self.incompatible: set[str] = set()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("GET")

            def do_POST(self) -> None:
                self._answer("POST")

            def _answer(self, method: str) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else {}
                status, answer = registry._respond(method, self.path, body, self.headers.get("Authorization"))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", _JSON)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The URL of the registry."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeSchemaRegistry:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Registers a schema, and returns its id.

        Args:
            subject: the subject.
            schema: the schema.
            kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
            references: the references, as objects with ``name``, ``subject`` and ``version``.
        """
        entry = {"schema": schema, "schemaType": kind, "references": references or []}
        with self._lock:
            if entry not in self._schemas:
                self._schemas.append(entry)
            schema_id = self._schemas.index(entry) + 1
            versions = self._subjects.setdefault(subject, [])
            if schema_id not in versions:
                versions.append(schema_id)
            return schema_id

    def _respond(self, method: str, path: str, body: dict[str, Any], login: str | None) -> tuple[int, Any]:
        parts = [unquote(it) for it in urlsplit(path).path.strip("/").split("/")]
        form = parse_qs(urlsplit(path).query).get("format", [""])[0]
        self.requests.append(f"{method} {urlsplit(path).path}")
        if self._login is not None and login != "Basic " + base64.b64encode(self._login.encode()).decode():
            return HTTPStatus.UNAUTHORIZED, {"error_code": 401, "message": "Unauthorized"}
        if self.fails_with is not None:
            return self.fails_with, {"error_code": self.fails_with, "message": "The test requires this error"}
        if method == "GET" and parts == ["schemas", "types"]:
            return HTTPStatus.OK, ["JSON", "PROTOBUF", "AVRO"]
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            return _in_form(self._by_id(int(parts[2])), form)
        if parts[0] == "subjects" and len(parts) >= 2:
            if method == "GET" and len(parts) == 4:
                return _in_form(self._version(parts[1], parts[3]), form)
            if method == "POST":
                return self._post(parts[1], body, registers=len(parts) == 3)
        return HTTPStatus.NOT_FOUND, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, schema_id: int) -> tuple[int, dict[str, Any]]:
        if self.answers_ids_with is not None:
            status, code = self.answers_ids_with
            return status, {"error_code": code, "message": "The test requires this error"}
        if schema_id > _MAX_INTEGER:
            # The id is no Integer of Java, so JAX-RS answers: SchemasResource.getSchema, @PathParam("id") Integer.
            return HTTPStatus.NOT_FOUND, {"error_code": 404, "message": "HTTP 404 Not Found"}
        if not 1 <= schema_id <= len(self._schemas):
            return HTTPStatus.NOT_FOUND, {"error_code": 40403, "message": f"Schema {schema_id} not found"}
        return HTTPStatus.OK, _shown(self._schemas[schema_id - 1])

    def _version(self, subject: str, version: str) -> tuple[int, dict[str, Any]]:
        versions = self._subjects.get(subject)
        if not versions:
            return HTTPStatus.NOT_FOUND, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(versions) if version == "latest" else int(version)
        if not 1 <= number <= len(versions):
            return HTTPStatus.NOT_FOUND, {"error_code": 40402, "message": f"Version {version} not found."}
        schema_id = versions[number - 1]
        found = {"subject": subject, "version": number, "id": schema_id}
        return HTTPStatus.OK, {**found, **_shown(self._schemas[schema_id - 1])}

    def _post(self, subject: str, body: dict[str, Any], *, registers: bool) -> tuple[int, dict[str, Any]]:
        kind, references = body.get("schemaType") or "AVRO", body.get("references") or []
        entry = {"schema": body["schema"], "schemaType": kind, "references": references}
        if registers:
            if subject in self.incompatible:
                return HTTPStatus.CONFLICT, {"error_code": 409, "message": "Schema being registered is incompatible"}
            return HTTPStatus.OK, {"id": self.add(subject, body["schema"], kind, references)}
        versions = self._subjects.get(subject)
        if not versions:
            return HTTPStatus.NOT_FOUND, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for number, schema_id in enumerate(versions, 1):
            if self._schemas[schema_id - 1] == entry:
                return HTTPStatus.OK, {"subject": subject, "version": number, "id": schema_id, **_shown(entry)}
        return HTTPStatus.NOT_FOUND, {"error_code": 40403, "message": "Schema not found"}


def _in_form(answer: tuple[int, dict[str, Any]], form: str) -> tuple[int, dict[str, Any]]:
    """An answer in the form of a request. Confluent's registry has no other form of a JSON Schema, and fails."""
    if form and answer[1].get("schemaType") == "JSON":
        message = f"Format not supported: {form}"
        return HTTPStatus.INTERNAL_SERVER_ERROR, {"error_code": 500, "message": message}
    return answer


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    """Avro is the default type, which a registry does not name."""
    return {name: value for name, value in entry.items() if value and (name, value) != ("schemaType", "AVRO")}
