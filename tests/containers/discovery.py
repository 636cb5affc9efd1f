"""Serves EndpointSlices as discovery.k8s.io/v1, in front of an API server that serves only v1beta1.

Bellwether uses v1, which Kubernetes serves since 1.21. Each request is forwarded with the client's own token and no other
credentials, so the API server behind it authenticates and authorizes the client as usual.
"""

import http.client
import json
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

V1, V1BETA1 = "discovery.k8s.io/v1", "discovery.k8s.io/v1beta1"
FORWARDED_HEADERS = "Accept", "Authorization", "Content-Type", "User-Agent"

# v1 has a field for each of these labels, which are part of an endpoint's topology in v1beta1.
FIELDS = {"nodeName": "kubernetes.io/hostname", "zone": "topology.kubernetes.io/zone"}


def as_v1beta1(document):
    """Returns a slice of v1, or a patch of one, as v1beta1 has it."""
    return converted(document, V1, V1BETA1, endpoint_as_v1beta1)


def as_v1(document):
    """Returns a slice of v1beta1 as v1 has it. Another document, such as an error, is returned unchanged."""
    return converted(document, V1BETA1, V1, endpoint_as_v1)


def converted(document, version, new_version, convert_endpoint):
    document = dict(document)
    if document.get("apiVersion") == version:
        document["apiVersion"] = new_version
    if document.get("endpoints"):
        document["endpoints"] = [convert_endpoint(endpoint) for endpoint in document["endpoints"]]
    return document


def endpoint_as_v1beta1(endpoint):
    endpoint = dict(endpoint)
    topology = dict(endpoint.pop("deprecatedTopology", {}))
    for field, label in FIELDS.items():
        if field in endpoint:
            topology[label] = endpoint.pop(field)
    return endpoint | ({"topology": topology} if topology else {})


def endpoint_as_v1(endpoint):
    endpoint = dict(endpoint)
    topology = dict(endpoint.pop("topology", {}))
    for field, label in FIELDS.items():
        if label in topology:
            endpoint[field] = topology.pop(label)
    return endpoint | ({"deprecatedTopology": topology} if topology else {})


class Delay:
    """The writes of one client that are held back, and the answers to them afterwards."""

    def __init__(self, client):
        self.client, self.is_over = client, threading.Event()
        self.writes, self.answers = [], []


class Discovery:
    def __init__(self, address, api_server, authority, certificate, key):
        self.api_server, self.authority = api_server, authority
        self.delay, self.requests = None, []
        discovery = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.respond(*discovery.forward(self))

            def do_PATCH(self):
                self.respond(*discovery.forward_patch(self))

            def respond(self, status, answer):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                try:
                    self.end_headers()
                    self.wfile.write(answer)
                except OSError:
                    self.close_connection = True  # The client of a delayed write has gone.

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer((address, 443), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # Each connection's handshake is left to its own thread.
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)

    def forward_patch(self, request):
        patch = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        delay = self.delay
        if not delay or delay.client != request.client_address[0]:
            return self.forward(request, patch)
        delay.writes.append(patch)
        delay.is_over.wait()
        status, answer = self.forward(request, patch)
        delay.answers.append((status, json.loads(answer).get("message")))
        return status, answer

    def forward(self, request, patch=None):
        """Returns the status and the body of the API server's answer."""
        context = ssl.create_default_context(cafile=self.authority)
        connection = http.client.HTTPSConnection(*self.api_server, context=context, timeout=30)
        headers = {name: request.headers[name] for name in FORWARDED_HEADERS if name in request.headers}
        path = request.path.replace(f"/apis/{V1}/", f"/apis/{V1BETA1}/")
        body = None if patch is None else json.dumps(as_v1beta1(patch))
        try:
            connection.request(request.command, path, body, headers)
            answer = connection.getresponse()
            status, document = answer.status, as_v1(json.loads(answer.read()))
        finally:
            connection.close()
        self.requests.append((request.command, status))
        return status, json.dumps(document).encode()

    @contextmanager
    def serving(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()

    @contextmanager
    def delayed(self, client):
        """Holds the client's writes back until the end."""
        delay = self.delay = Delay(client)
        try:
            yield delay
        finally:
            self.delay = None
            delay.is_over.set()
