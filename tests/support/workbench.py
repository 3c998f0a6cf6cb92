"""What a terminal workbench shows when nothing is live: a store filled by hand, always the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from devkit.contract import differences, inspection, pictures
from devkit.contract.inspection import Held
from devkit.contract.tracing import OwnSpan, Trace
from devkit.control import messages
from devkit.control.findings import ExportedFile, ExportPlan
from devkit.control.messages import TensorAddress
from devkit.control.tracing import Traces
from devkit.tools.compare import OutputCheck
from devkit.tools.verify import ModelCheck, RequestCheck, VerifyReport
from devkit.tui.store import Debug, Export, Look, Opened, Shown, Store

NOW = 1_700_000_000.0
MODEL = "/models/brighten/1/model.py"

SOURCE = '''\
"""Brightens pictures."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.gain = 1.5

    def execute(self, requests):
        answers = []
        for request in requests:
            image = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
            grey = image.astype(np.float32).mean(axis=2)  # of the three channels
            bright = np.clip(image * self.gain, 0, 255).astype(np.uint8)
            if image.shape[0] < 4:
                raise ValueError("the picture is too small")
            answer = pb_utils.Tensor("BRIGHT", bright)
            answers.append(pb_utils.InferenceResponse([answer]))
        return answers
'''
HERE = 16


def store() -> Store:
    """Four models, a dozen requests, an opened picture, a trace, a stopped process, an export."""
    made = Store(workspace="/home-of/pictures", now=lambda: NOW, trouble="")
    made.found(snapshot())
    made.measured(history())
    made.captures = tuple(captures())
    made.failures = ()
    made.logs = log()
    made.opened = opened()
    made.traces = traces()
    made.debug = debug()
    made.export = export()
    made.choose("brighten")
    return made


def snapshot() -> messages.Snapshot:
    runtime = messages.Runtime(
        pid=4711, workspace="/home-of/pictures", started=NOW - 780, control="", local="",
        endpoints=(messages.Endpoint("http", "127.0.0.1", 8000),), server_version="2.51.0",
    )  # fmt: skip
    memory = messages.SharedMemory(
        total=16 << 30, free=13 << 30,
        slabs=(
            messages.Slab("devkit-4711-brighten-requests", 64 << 20, 21 << 20, 43 << 20, 48 << 20,
                          3, (messages.Owner("request 17", 20 << 20),
                              messages.Owner("request 18", 1 << 20))),
            messages.Slab("devkit-4711-brighten_0-responses", 8 << 20, 0, 8 << 20, 6 << 20, 0),
        ),
    )  # fmt: skip
    return messages.Snapshot(
        sequence=900, runtime=runtime, ready=True, models=models(), memory=memory,
        process=process(4711, 112), time=NOW,
        gpus=(messages.Gpu(0, "NVIDIA L4", 24 << 30, 9 << 30, 37),),
    )  # fmt: skip


def process(pid: int, megabytes: int, gpu: int = -1) -> messages.Process:
    rss = megabytes << 20
    return messages.Process(pid, rss, rss * 2 // 3, rss // 2, 12.0, 4, 23, gpu)


def models() -> tuple[messages.Model, ...]:
    image = messages.Tensor("IMAGE", "UINT8", (-1, -1, 3))
    bright = messages.Tensor("BRIGHT", "UINT8", (-1, -1, 3))
    text = messages.Tensor("TEXT", "BYTES", (-1, 1))
    warned = messages.Warned(
        "output-dtype", "output 'SCORE' is FP64, the config says FP32", f"{MODEL}:19", count=12,
        time=NOW,
    )  # fmt: skip
    two = tuple(
        messages.Instance(
            f"brighten_{n}", "brighten", "1", 4720 + n, state, "GPU", 0, "warm", 0.41, 0, 310 + n,
            1 - n, process(4720 + n, 320, 2 << 30),
        )
        for n, state in enumerate(("busy", "ready"))
    )  # fmt: skip
    return (
        messages.Model(
            "brighten", "1", ("1",), "READY", inputs=(image,), outputs=(bright,),
            folder="/models/brighten", file=MODEL, instances=two, pending=3, inferences=621,
            executions=621, failures=2, load_seconds=0.52, warnings=(warned,),
        ),
        messages.Model(
            "classify", "2", ("1", "2"), "READY", inputs=(bright,),
            outputs=(messages.Tensor("LABEL", "BYTES", (5,)),), max_batch_size=8,
            folder="/models/classify", file="/models/classify/2/model.py",
            error="Traceback (most recent call last):\nSyntaxError: '(' was never closed",
            instances=(messages.Instance("classify_0", "classify", "2", 4731, "restarting", "CPU",
                                         0, "spawn", 1.2, 2, 88, 0, process(4731, 96)),),
            inferences=88, executions=40, load_seconds=1.3,
        ),
        messages.Model("pipeline", "1", ("1",), "READY", platform="ensemble", inputs=(image,),
                       folder="/models/pipeline", inferences=40, executions=40),
        messages.Model("tokenizer", "", ("1",), "UNAVAILABLE", inputs=(text,),
                       reason="FileNotFoundError: [Errno 2] No such file: 'vocab.txt'",
                       folder="/models/tokenizer", file="/models/tokenizer/1/model.py"),
    )  # fmt: skip


def history() -> messages.History:
    wave = tuple(20 + 15 * float(np.sin(n / 7)) + n % 5 for n in range(90))
    late = tuple(3.1 + (n % 11) / 10 for n in range(90))
    rows = [
        messages.Series("inferences", "per second", "brighten", "1", values=wave),
        messages.Series("latency", "ms", "brighten", "1", values=late),
        messages.Series("queue", "requests", "brighten", "1", values=tuple(
            float(max(0, n % 30 - 24)) for n in range(90))),
        messages.Series("inferences", "per second", "classify", "2", values=(*(0.0,) * 60,
                                                                             *wave[:30])),
        messages.Series("latency", "ms", "classify", "2", values=late),
        messages.Series("cpu", "percent", values=tuple(10.0 + n % 9 for n in range(90))),
        messages.Series("shm_ours", "bytes", values=tuple(
            float((40 + n // 3) << 20) for n in range(90))),
    ]  # fmt: skip
    for n in range(2):
        about = ("brighten", "1", f"brighten_{n}")
        rows += [
            messages.Series("busy", "percent", *about, tuple(one * (2 - n) for one in wave)),
            messages.Series("cpu", "percent", *about, tuple(one * (2 - n) for one in wave)),
            messages.Series("inferences", "per second", *about, tuple(one / 2 for one in wave)),
        ]
    return messages.History(NOW, 1.0, tuple(rows))


def captures() -> list[messages.CaptureInfo]:
    image = (messages.Tensor("IMAGE", "UINT8", (96, 128, 3)),)
    small = (messages.Tensor("IMAGE", "UINT8", (2, 128, 3)),)
    error = (
        "Failed to process the request(s) for model 'brighten_0', message: ValueError: the picture "
        f"is too small\n\nAt:\n  {MODEL}(18): execute\n"
    )
    rows = []
    for number in range(1, 25):
        failed = number % 9 == 0
        model = "classify" if number % 4 == 0 else "brighten"
        rows.append(
            messages.CaptureInfo(
                number, model, "1", f"cam-{number}" if number % 2 else "", NOW - 60 + number,
                0.0012 * (1 + number % 7), 928 if failed else 37_064, 0 if failed else 37_010, 1,
                error if failed else "", inputs=small if failed else image,
            )
        )  # fmt: skip
    return rows


def log() -> list[messages.LogLine]:
    texts = [
        ("INFO", "", "", "'brighten' version 1 loaded in 0.52 s: start the instances 0.41 s"),
        ("stdout", "brighten", "brighten_0", "gain is 1.5"),
        ("stderr", "brighten", "brighten_1", "UserWarning: no CUDA device, using the CPU"),
        ("WARNING", "brighten", "brighten_0", "output 'SCORE' is FP64, the config says FP32"),
        ("ERROR", "tokenizer", "", "FileNotFoundError: [Errno 2] No such file: 'vocab.txt'"),
        ("stdout", "classify", "classify_0", "label tabby, tiger cat: 0.82"),
    ]
    return [
        messages.LogLine(n + 1, NOW - 60 + n, *texts[n % 6][:1], texts[n % 6][3], texts[n % 6][1],
                         texts[n % 6][2], 4720)
        for n in range(30)
    ]  # fmt: skip


def picture() -> np.ndarray:
    y, x = np.mgrid[0:96, 0:128]
    return np.stack([x * 2, y * 2, (np.hypot(x - 64, y - 48) * 4) % 256], -1).astype(np.uint8)


def opened() -> Opened:
    array = picture()
    made = pictures.picture(array)
    assert made is not None
    scores = Held.of("SCORES", np.sin(np.arange(300) / 20).astype(np.float32))
    rows = [
        messages.TensorInfo(TensorAddress(17, part=part, name=name), kind, shape, size, view)
        for part, name, kind, shape, size, view in (
            ("inputs", "IMAGE", "UINT8", (96, 128, 3), 36_864, "image"),
            ("probes", "grey", "FP32", (96, 128), 49_152, "table"),
            ("outputs", "BRIGHT", "UINT8", (96, 128, 3), 36_864, "image"),
            ("outputs", "SCORES", "FP32", (300,), 1200, "series"),
        )
    ]
    import base64

    shown = messages.Picture(
        base64.b64encode(made.png).decode(), made.layout, made.width, made.height, made.shown,
        made.count, made.step, made.scaling,
    )  # fmt: skip
    looks = {
        rows[0].address: Look(inspection.summarise(Held.of("IMAGE", array)), picture=shown),
        rows[3].address: Look(inspection.summarise(scores), series=inspection.series(scores, 200)),
    }
    return Opened(captures()[16], tuple(rows), looks)


def traces() -> Traces:
    rows = []
    for number in range(4):
        at = 1_000_000_000 + number * 2_400_000
        rows.append(
            Trace(
                2 * number + 1, "brighten", "1", f"cam-{number}", protocol="HTTP",
                instance=f"brighten_{number % 2}", pid=4720 + number % 2, batch=number + 1,
                receive_start=at, receive_end=at + 80_000, request_start=at + 90_000,
                queue_start=at + 95_000, compute_start=at + 420_000 * (1 + number % 2),
                compute_input_end=at + 1_000_000, compute_output_start=at + 3_100_000,
                compute_end=at + 3_300_000, request_end=at + 3_320_000, complete=at + 3_310_000,
                send_start=at + 3_320_000, send_end=at + 3_400_000, instances=2, busy=2, waiting=1,
                spans=(OwnSpan("decode", at + 1_050_000, at + 1_400_000),
                       OwnSpan("brighten", at + 1_500_000, at + 3_000_000,
                               attributes={"gain": 1.5})),
            )
        )  # fmt: skip
    return Traces(tuple(rows), 4711, 0)


def debug() -> Debug:
    frames = (
        messages.Frame(1, "execute", MODEL, HERE),
        messages.Frame(2, "_execute", "/lib/devkit/stub/process.py", 210, own=False),
    )
    tensor = messages.TensorSummary(
        "numpy", "float32", (96, 128), "cpu", (21.3, 20.7, 20.3, 19.7), 14.33, 219.7, 122.4
    )
    image = messages.TensorSummary(
        "numpy", "uint8", (96, 128, 3), "cpu", (0, 0, 64, 2, 0, 60), 0.0, 255.0, 122.4
    )
    rows = (
        Shown(messages.Variable("answers", "[]", "list", 5), 0, ("answers",)),
        Shown(messages.Variable("grey", "array(...)", "ndarray", 6, tensor=tensor), 0, ("grey",)),
        Shown(messages.Variable("image", "array(...)", "ndarray", 7, tensor=image), 0, ("image",)),
        Shown(messages.Variable("self", "<TritonPythonModel>", "TritonPythonModel", 8), 0,
              ("self",)),
        Shown(messages.Variable("gain", "1.5", "float"), 1, ("self", "gain")),
        Shown(messages.Variable("note", "'first of the day'", "str"), 0, ("note",)),
    )  # fmt: skip
    return Debug(
        session=messages.DebugSession(
            1, "brighten", "1", "brighten_0", 4720, "stopped", reason="breakpoint",
            line=f"{MODEL}:{HERE}", function="execute", requests=("cam-17",), spare="brighten_2",
        ),
        frames=frames, frame=1, variables=rows, unfolded=frozenset({("self",)}),
        breakpoints=messages.Breakpoints((
            messages.Breakpoint(1, MODEL, HERE, verified=True),
            messages.Breakpoint(2, MODEL, 18, condition="image.shape[0] < 4", verified=True),
        )),
        file=MODEL, text=SOURCE,
        said=[("good", "attached to brighten_0: the next request that comes to a breakpoint stops"),
              ("accent", f"stopped (breakpoint) at {MODEL}:{HERE}"),
              ("bold", ">>> grey.mean()"), ("", "122.406")],
    )  # fmt: skip


def export() -> Export:
    folder = Path("/home-of/pictures/export/brighten")
    change = (
        "--- there now\n+++ exported\n@@ -8,1 +8,1 @@\n-        self.gain = 1.2\n"
        "+        self.gain = 1.5"
    )
    plan = ExportPlan(
        str(folder.parent), ("brighten",), "differs",
        (ExportedFile("brighten/1/model.py", 912, "changed", change),
         ExportedFile("brighten/1/tables.py", 2048, "new"),
         ExportedFile("brighten/config.pbtxt", 245, "same")),
        brought=("brighten/1/tables.py from /home-of/shared/tables.py",),
    )  # fmt: skip
    near = differences.CLOSE
    checks = tuple(
        RequestCheck("brighten", "recorded", n, "live", 200, 200, (
            OutputCheck("BRIGHT", near if n == 3 else "same",
                        "1 value of 36864 is 1 apart" if n == 3 else "", "UINT8", (96, 128, 3)),))
        for n in range(1, 6)
    )  # fmt: skip
    verified = VerifyReport(folder, "2.51.0", (ModelCheck("brighten", requests=checks),), 4.2)
    return Export(
        "brighten", "export", plan,
        [("good", f"✔ {folder}: written, 3 files"), ("bold", f"verifying {folder}"),
         ("dim", "· starting the real Triton server 2.51.0"), ("dim", "· verifying brighten")],
        verified,
    )  # fmt: skip
