"""A RabbitMQ broker of its own: directories, ports, cookie and epmd are nobody else's."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pika
from outbox_rig.paths import BUILD
from outbox_rig.process import Process, free_port
from outbox_rig.wait import patient, wait_until

SBIN = Path("/usr/lib/rabbitmq/bin")


class Broker:
    def __init__(self, name: str, directory: Path, log: Path, tls: dict[str, str] = {}, settings: dict[str, str] = {}, plugins: str = ""):
        """`tls`: certificate, key and authority in PEM. `settings`: lines of rabbitmq.conf. `plugins`: names, separated by commas."""
        self.name, self.dir, self.log = name, directory, log
        self.port, self.tls_port = free_port(), free_port()
        self._epmd_port, self._distribution_port = free_port(), free_port()
        directory.mkdir(parents=True)
        lines = {"listeners.tcp.1": f"127.0.0.1:{self.port}", "loopback_users": "none", "log.file": "false", "log.console": "true",
                 "log.console.level": "info", "disk_free_limit.absolute": "1MB", "total_memory_available_override_value": "4GB",
                 "vm_memory_high_watermark.relative": "0.4"} | settings
        if tls:
            for what, pem in tls.items():
                (directory / f"{what}.pem").write_text(pem)
            lines |= {"listeners.ssl.1": f"127.0.0.1:{self.tls_port}", "ssl_options.cacertfile": f"{directory}/authority.pem",
                      "ssl_options.certfile": f"{directory}/certificate.pem", "ssl_options.keyfile": f"{directory}/key.pem",
                      "ssl_options.verify": "verify_peer", "ssl_options.fail_if_no_peer_cert": "false"}
        (directory / "rabbitmq.conf").write_text("".join(f"{key} = {value}\n" for key, value in lines.items() if value))
        (directory / "plugins").write_text(f"[{plugins}].\n")
        self._env = {
            "HOME": str(directory), "RABBITMQ_NODENAME": f"{name}@localhost", "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"), "RABBITMQ_LOG_BASE": str(directory / "log"), "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"), "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null", "ERL_EPMD_PORT": str(self._epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "LC_ALL": "C.UTF-8",
        }
        self._epmd: Process | None = None
        self._process: Process | None = None

    # ---- life ------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Of the Erlang machine; what was started is a shell around it."""
        return int((self.dir / "pid").read_text())

    def start(self) -> None:
        if self._epmd is None or not self._epmd.running():
            self._epmd = Process(f"{self.name}-epmd", ["epmd"], self.log, env=self._env)
        (self.dir / "pid").unlink(missing_ok=True)
        self._process = Process(self.name, [str(SBIN / "rabbitmq-server")], self.log, pid_file=BUILD / "run" / f"{self.name}.pid", env=self._env)
        wait_until(self._answers, 90, lambda: f"RabbitMQ to start; {self.log} ends:\n{self._process.tail()}", interval=0.1)

    def _answers(self) -> bool:
        """A login stands for `rabbitmq-diagnostics check_running`, which would start an Erlang machine for each look; none succeeds before the broker runs."""
        self._process.must_run()
        try:
            self.connect().close()
            return True
        except pika.exceptions.AMQPError:
            return False

    def kill(self) -> None:
        """Sends kill -9 to the machine."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait(20)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self._process and self._process.running():
            try:
                os.kill(self.pid, signal.SIGCONT)
                os.kill(self.pid, signal.SIGTERM)
            except (OSError, ValueError):
                pass
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, signal.SIGKILL)
            self._process.stop(5)

    def close(self) -> None:
        self.stop()
        if self._epmd:
            self._epmd.stop()
        shutil.rmtree(self.dir / "mnesia", ignore_errors=True)

    # ---- use -------------------------------------------------------------------------------------------------

    def ctl(self, *arguments: str) -> str:
        """rabbitmqctl: takes two seconds."""
        done = subprocess.run([str(SBIN / "rabbitmqctl"), "-q", *arguments], env=os.environ | self._env, text=True, cwd="/", timeout=patient(60),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def sync(self) -> None:
        """Writes declarations to the disk: RabbitMQ itself loses a queue or binding that was made just before it is killed. rabbitmqctl would start an
        Erlang machine for that, which takes half a minute on a busy computer."""
        done = subprocess.run(["erl_call", "-address", f"127.0.0.1:{self._distribution_port}", "-a", "mnesia sync_log []"], env=os.environ | self._env, text=True,
                              timeout=patient(60), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.stdout == "ok", done.stdout

    def connect(self, vhost: str = "/", **options) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, vhost, heartbeat=0, socket_timeout=patient(5), **options))

    def channel(self):
        """A channel of a connection of its own."""
        return self.connect().channel()
