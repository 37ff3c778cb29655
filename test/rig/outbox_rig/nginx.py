"""A private nginx: an endpoint that is never the bottleneck, or one that fails as configured."""

import os
import shutil
import subprocess
from pathlib import Path

from .postgres import children
from .process import Program, free_port
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
{http}
  server {{
    listen 127.0.0.1:{port};
{locations}
  }}
}}
"""


class Nginx(Program):
    def __init__(self, name: str, directory: Path, log: Path, locations: str = "location / { return 204; }",
                 workers: int = 1, http: str = ""):
        """`locations`: in nginx's syntax, such as `location /slow { ... }`; $port and $dir are replaced. `http`:
        further text for the http block."""
        self.name, self.dir, self.log = name, directory, log
        self.port = free_port()
        self._workers = workers
        directory.mkdir(parents=True)
        self._configure(locations, http)

    def _configure(self, locations: str, http: str) -> None:
        user = "user root;" if os.getuid() == 0 else ""  # nginx's user may not be able to read the directory
        locations, http = (text.replace("$port", str(self.port)).replace("$dir", str(self.dir)) for text in (locations, http))
        (self.dir / "nginx.conf").write_text(
            CONF.format(dir=self.dir, port=self.port, workers=self._workers, user=user, locations=locations, http=http))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        return [shutil.which("nginx") or "/usr/sbin/nginx", "-e", "stderr", "-c", str(self.dir / "nginx.conf")]

    def start(self) -> None:
        checked = subprocess.run([*self._command(), "-t", "-q"], capture_output=True, text=True)
        if checked.returncode:
            raise RuntimeError(checked.stderr)
        self.run(self._command())
        self.wait_listening(10)

    def reload(self) -> None:
        """`nginx -s reload`, as an administrator does: old workers finish their requests, new ones take over."""
        subprocess.run([*self._command(), "-s", "reload"], check=True, capture_output=True)

    def reloaded(self) -> None:
        """Reloads, and returns when the old workers have ended. A worker logs a request after it has answered it, so the
        log of two workers is not in the order of the requests."""
        old = set(children(self._process.pid))
        self.reload()
        wait_until(lambda: (now := set(children(self._process.pid))) and not now & old, 30, "nginx's old workers to end")

    def restart(self) -> None:
        self.stop()
        self.start()
