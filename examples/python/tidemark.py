"""A Kubernetes API server for tests. Only the standard library is needed."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import urllib.request


class _Socket(http.client.HTTPConnection):
    """An HTTP connection through a unix socket."""

    def __init__(self, path):
        super().__init__("control")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Server:
    """A server process. It ends with this process, also if that is killed."""

    def __init__(self, program=os.environ.get("TIDEMARK", "tidemark")):
        self.dir = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [program, "serve", "--in-memory", "--port=0", "--ready-fd=1", "--exit-with-parent",
             "--control=" + os.path.join(self.dir, "control.sock")],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("tidemark does not start: exit code %s" % self.process.wait())
        self.ready = json.loads(line)

    def control(self, method, path, body=None):
        """Sends a request to the control API."""
        connection = _Socket(self.ready["control"])
        try:
            connection.request(method, "/control/v1/" + path, json.dumps(body or {}), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            if response.status >= 300:
                raise RuntimeError(json.loads(text)["message"])
            return json.loads(text) if text else None
        finally:
            connection.close()

    def fork(self, parent="root"):
        return World(self, self.control("POST", "worlds", {"parent": parent}))

    def close(self):
        self.process.terminate()
        self.process.communicate()
        shutil.rmtree(self.dir, ignore_errors=True)


class World:
    """A cluster of one test. world.info["kubeconfig"] is for the official client."""

    def __init__(self, server, info):
        self.server, self.info = server, info
        self.tls = ssl.create_default_context(cadata=info["ca"])

    def apply(self, *manifests):
        files = [{"name": "manifest %d" % (i + 1), "content": m} for i, m in enumerate(manifests)]
        return self.server.control("POST", "worlds/%s/apply" % self.info["name"], {"manifests": files})

    def get(self, path):
        request = urllib.request.Request(self.info["url"] + path, headers={"Authorization": "Bearer " + self.info["token"]})
        with urllib.request.urlopen(request, context=self.tls) as response:
            return json.load(response)

    def close(self):
        self.server.control("DELETE", "worlds/" + self.info["name"])
