"""Asks the real server for its answer to every variant and writes `recorded.json`.

    python record.py repository DIR               writes the model repository
    python record.py ask URL LOG DIR [NAME ...]   loads each model, records, unloads it again

Start the server between the two, on DIR, with `--model-control-mode=explicit
--exit-on-error=false`, its log going to LOG. A variant that ends the server ends the recording:
take it out and go on with the names that are left. The tests only read the recording.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from variants import V

MODEL = """
class TritonPythonModel:
    def execute(self, requests):
        return [None for _ in requests]
"""
WARM = """
import numpy as np
import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        output = pb.Tensor("Y", np.zeros((1, 1), np.float32))
        return [pb.InferenceResponse([output]) for _ in requests]
"""
HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
MEMBERS = ("plain", "batch8", "decoupled", "type_int32", "two_in", "opt_in", "ens_one")


def write(root: Path) -> None:
    for name, text in V.items():
        for version in ("1", "3") if name.startswith("vp_") else ("1",):
            folder = root / name / version
            folder.mkdir(parents=True, exist_ok=True)
            if 'platform: "ensemble"' not in text and name != "ens_noplatform":
                (folder / "model.py").write_text(WARM if "warmup" in name else MODEL)
        if text:
            (root / name / "config.pbtxt").write_text(text)


def call(url: str, data: bytes | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=25) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ask(url: str, log: Path, root: Path, names: list[str]) -> None:
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name in MEMBERS:  # what the ensembles are made of
        call(f"{url}/v2/repository/models/{name}/load", b"")
    for name in names or V:
        recorded[name] = answer(name, url, log, str(root.resolve()))
        print(name, recorded[name]["status"], recorded[name].get("error", "").strip(), flush=True)
        RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")


def answer(name: str, url: str, log: Path, root: str) -> dict[str, Any]:
    at = log.stat().st_size
    status, body = call(f"{url}/v2/repository/models/{name}/load", b"")
    entry: dict[str, Any] = {"status": status}
    if status == 200:
        entry["config"] = call(f"{url}/v2/models/{name}/config")[1]
        entry["metadata"] = call(f"{url}/v2/models/{name}")[1]
        if name not in MEMBERS:
            call(f"{url}/v2/repository/models/{name}/unload", b"")
        return entry
    entry["error"] = json.loads(body)["error"].replace(root, "/path")
    if status == 500:
        written = log.read_bytes()[at:].decode(errors="replace").replace(root, "/path")
        lines = (line for line in written.splitlines() if line[:1] in "EW[")
        entry["log"] = [line.split("] ", 1)[-1] for line in lines]
    return entry


if __name__ == "__main__":
    if sys.argv[1] == "repository":
        write(Path(sys.argv[2]))
    else:
        ask(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
