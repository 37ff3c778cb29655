"""The Python classes of sink.proto, made by protoc: `sink_pb2`, and PYTHONPATH for programs that import them."""

import subprocess
import sys
from pathlib import Path

from outbox_rig.paths import BUILD

HERE = Path(__file__).resolve().parents[1]
FOLDER = BUILD / "grpc"

if not (FOLDER / "sink_pb2_grpc.py").exists() or (FOLDER / "sink_pb2.py").stat().st_mtime < (HERE / "sink.proto").stat().st_mtime:
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", f"--python_out={FOLDER}", f"--grpc_python_out={FOLDER}", "sink.proto"],
                   check=True)
sys.path.insert(0, str(FOLDER))

import sink_pb2  # noqa: E402, F401
