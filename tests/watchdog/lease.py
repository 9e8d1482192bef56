"""lease.py CERTIFICATE: an API server with one Lease, compared and written as an API server does. CERTIFICATE has the key, too.

It prints its port, and then a line for each write: the time, the state and the round. SIGUSR1 is another client, which writes
`Revoked` over the version that stands there."""

import http.server
import json
import signal
import ssl
import sys
import threading
import time

STATE = "watchdog.pod-safety.dev/state"
ROUND = "watchdog.pod-safety.dev/round"
lease = None
revision = 0
lock = threading.RLock()


def write(new):
    global lease, revision
    revision += 1
    new["metadata"]["resourceVersion"] = str(revision)
    lease = new
    says = new["metadata"]["annotations"]
    print(f"{time.time():.3f} {says[STATE]} {says.get(ROUND, '-')}", flush=True)


def revoked(*_):
    # A copy: the object may be on its way as an answer.
    with lock:
        new = json.loads(json.dumps(lease))
        new["metadata"]["annotations"][STATE] = "Revoked"
        write(new)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        with lock:
            found = lease
        self.answer(200 if found else 404, found or {"kind": "Status"})

    def do_PUT(self):
        new = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            has = lease["metadata"]["resourceVersion"] if lease else None
            fits = new["metadata"].get("resourceVersion") == has
            if fits:
                write(new)
        self.answer(200 if fits else 409, new if fits else {"kind": "Status", "reason": "Conflict"})

    do_POST = do_PUT

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
signal.signal(signal.SIGUSR1, revoked)
print(server.server_port, flush=True)
server.serve_forever()
