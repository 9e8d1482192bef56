"""bmc.py ADDRESS PORT CERTIFICATE KEY PASSWORD MACHINES SWITCH: the power switches of machines, as a Redfish service.

SWITCH is a program: `SWITCH on|off|status NAME` does it, or prints `on` or `off`. Whether a machine is on is what it says
now; nothing is remembered here. MACHINES is a file of lines `name uuid`; the UUID is what the machine's Node says."""

import base64
import http.server
import json
import ssl
import subprocess
import sys

SYSTEMS = "/redfish/v1/Systems"
RESET = "/Actions/ComputerSystem.Reset"
ORDERS = {"ForceOff": "off", "On": "on"}


def switch(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)


def power(name):
    said = switch("status", name).stdout.strip()
    return {"on": "On", "off": "Off"}.get(said)  # what the switch does not say is not said here either


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
        result = switch(ORDERS[how], name)
        print(f"{self.client_address[0]}: {name}: {how}, then {power(name)} {result.stderr.strip()}", flush=True)
        self.answer(204 if result.returncode == 0 else 500)


address, port, certificate, key, password, machines, program = sys.argv[1:]
with open(machines) as lines:
    Bmc.machines = dict(line.split() for line in lines)
Bmc.authorization = "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()
server = http.server.ThreadingHTTPServer((address, int(port)), Bmc)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
