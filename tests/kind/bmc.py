"""bmc.py ADDRESS PORT CERTIFICATE KEY PASSWORD: the power switch of kind's nodes, as a Redfish service.

Off is `docker kill`: every process of the node ends at once, without a word to anybody. On is `docker start`. Whether it
is on is what Docker says now; nothing is remembered. The UUID of a machine is what its Node says, passed as lines of
`name uuid` on standard input."""

import base64
import http.server
import json
import ssl
import subprocess
import sys

SYSTEMS = "/redfish/v1/Systems"
RESET = "/Actions/ComputerSystem.Reset"
ORDERS = {"ForceOff": ["kill", "--signal=KILL"], "On": ["start"]}


def docker(*arguments):
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=60)


def power(name):
    running = docker("inspect", "--format", "{{.State.Running}}", name).stdout.strip()
    return {"true": "On", "false": "Off"}.get(running)  # what Docker does not say is not said here either


def system(name, uuid):
    path = f"{SYSTEMS}/{name}"
    return {
        "@odata.id": path,
        "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
        "Id": name,
        "Name": name,
        "UUID": uuid,
        "PowerState": power(name),
        "Actions": {
            "#ComputerSystem.Reset": {"target": path + RESET, "ResetType@Redfish.AllowableValues": list(ORDERS)}
        },
    }


class Bmc(http.server.BaseHTTPRequestHandler):
    machines = {}
    authorization = ""
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=None):
        text = json.dumps(body).encode() if body else b""
        self.send_response(status)
        if status != 204:  # which has no body, and does not say so
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def machine(self, path):
        """Its name, if the path is that of a machine that is known and whoever asks may."""
        if self.headers.get("Authorization") != self.authorization:
            self.answer(401)
            return None
        name = path.removeprefix(SYSTEMS + "/")
        if name not in self.machines:
            self.answer(404)
            return None
        return name

    def do_GET(self):
        name = self.machine(self.path)
        if name:
            self.answer(200, system(name, self.machines[name]))

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = self.machine(self.path.removesuffix(RESET))
        if not name:
            return
        how = json.loads(body).get("ResetType")
        if not self.path.endswith(RESET) or how not in ORDERS:
            self.answer(400)
            return
        result = docker(*ORDERS[how], name)
        print(f"{name}: {how}, then {power(name)} {result.stderr.strip()}", flush=True)
        self.answer(204 if result.returncode == 0 else 500)


address, port, certificate, key, password = sys.argv[1:]
Bmc.machines = dict(line.split() for line in sys.stdin)
Bmc.authorization = "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()
server = http.server.ThreadingHTTPServer((address, int(port)), Bmc)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
