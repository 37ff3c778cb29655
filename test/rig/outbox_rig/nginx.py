"""A private nginx: an endpoint that is never the bottleneck."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from .paths import BUILD
from .process import Process, free_port
from .wait import wait_until

CONF = """\
daemon off;
worker_processes {workers};
pid {dir}/nginx.pid;
error_log stderr warn;
{user}
events {{ worker_connections 1024; }}
http {{
  access_log off;
  log_format ids "$status $uri $http_webhook_id";
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  keepalive_requests 1000000;
  server {{
    listen 127.0.0.1:{port};
{locations}
  }}
}}
"""


class Nginx:
    def __init__(self, name: str, directory: Path, log: Path, locations: str = "location / { return 204; }",
                 workers: int = 1):
        """`locations`: nginx's own syntax, such as `location /slow { ... }`."""
        self.name, self.dir, self.log = name, directory, log
        self.port = free_port()
        self._process: Process | None = None
        directory.mkdir(parents=True)
        user = "user root;" if os.getuid() == 0 else ""  # its own user may not reach the directory
        (directory / "nginx.conf").write_text(
            CONF.format(dir=directory, port=self.port, workers=workers, user=user, locations=locations))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        conf = str(self.dir / "nginx.conf")
        checked = subprocess.run([program, "-t", "-q", "-e", "stderr", "-c", conf], capture_output=True, text=True)
        if checked.returncode:
            raise RuntimeError(checked.stderr)
        self._process = Process(self.name, [program, "-e", "stderr", "-c", conf], self.log,
                                pid_file=BUILD / "run" / f"{self.name}.pid")
        wait_until(self._listening, 10, "nginx to listen")

    def _listening(self) -> bool:
        self._process.must_run()
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        if self._process:
            self._process.stop(10)

    def kill(self) -> None:
        self._process.kill()
