"""What a person sees who writes models in cells: real kernels, a real runtime, real clients."""

import re
import threading

import nbformat
import numpy as np
import psutil
import pytest
import tritonclient.http
from nbclient import NotebookClient

from tests.faces.conftest import ROOT, strip_colours

TIMES = """%%model times {options}
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * {factor})]))
        return responses
"""
CONFIG = """%%config times
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
ASK = 'print(devkit.infer("times", {"X": np.arange(3, dtype=np.float32)})["Y"].tolist())'

KILL = """
import os, signal, time

def only():
    (model,) = [m for m in devkit.models() if m.name == "times"]
    return model.instances[0]

killed = only().pid
os.kill(killed, signal.SIGKILL)
while only().pid == killed or only().state != "ready":
    time.sleep(0.02)
"""


def times(factor, options=""):
    return TIMES.format(factor=factor, options=options)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_notebook_of_the_tour_runs_from_top_to_bottom(path, workspace):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(workspace.folder)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = strip_colours("\n".join(_plain(output) for output in outputs))
    if path.stem == "01_first_model":
        assert "normalize: READY" in text
        assert "Assumed" in text
        assert re.search(r'Cell In\[\d+\], line 7, in initialize\n.*\n.*\n-+> +7 .*\["b"\]', text)
        assert "KeyError: 'b'" in text
        assert "keeps serving" in text
        assert "1/model.py" in text
        assert 'name: "X"' in text
    if path.stem == "02_step_into_execute":
        assert "weigh_0: stopped at a breakpoint, Cell In[2], line 14" in text
        assert "served: [2. 4. 6.]\nstands: weigh_0 in execute" in text
        assert "{'Y': array([100., 200., 300.], dtype=float32)}" in text
        assert "weigh_1: stopped at an exception, Cell In[2], line 13" in text
        assert "array([100., 200., 300.], dtype=float32)" in text.rpartition("exception")[2]
    if path.stem == "03_see_a_tensor":
        assert "rings NaN in nothing" in text
        assert "black NaN in ['probes/normal', 'outputs/SHARE']" in text
        assert "normal: 18,432 of 18,432 values are NaN" in text
        assert "ValueError: a picture of one colour" in text
        assert "1 of 1 request answered otherwise than recorded" in text
        assert re.search(r"then: Failed .*a picture of one colour\nnow: .*array\(\[0\.", text)
    if path.stem == "04_read_a_trace":
        assert "12 requests, " in text
        assert re.search(r"^slow: embed_0_1 \(pid \d+\)$", text, re.MULTILINE)
        assert "instances were busy" in text
        assert re.search(r"^embed_0_0 +pid \d+ +[1-9]\S* MB of shared memory", text, re.MULTILINE)
        assert "slow.json: " in text
    if path.stem == "06_export_and_prove":
        assert "[string-as-str]" in text
        assert "[print-in-execute]" in text
        assert "for Triton 24.10: nothing to say" in text
        assert "model_warmup" in text
        assert "--shm-size=256m" in text
        assert "The real server answers the same" in text


def _plain(output):
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return output.data.get("text/plain", "")


def test_a_cell_becomes_processes(kernel, workspace):
    result = kernel.run(times(2, "--instances 2"))
    assert "times: READY, version 1, 2 instances, loaded in" in result.text
    pids = [int(pid) for pid in re.findall(r"^  times_0_\d +(\d+) ", result.text, re.MULTILINE)]
    assert len(set(pids)) == 2
    runtime = psutil.Process(workspace.process.pid)
    assert set(pids) <= {child.pid for child in runtime.children(recursive=True)}
    for pid in pids:
        assert str(pid) in result.html
    assert "No config yet" in result.text
    again = kernel.run(times(3, "--instances 2"))  # other processes, and their memory is known too
    assert re.search(r"times_0_1 .* MB$", again.text, re.MULTILINE), again.text


def test_the_first_call_gives_the_config_and_says_what_it_assumed(kernel):
    kernel.run(times(2))
    result = kernel.run(ASK)
    assert "[0.0, 2.0, 4.0]" in result.text
    assert "X" in result.text
    assert "FP32" in result.text
    shown = kernel.run("%devkit config times").text
    assert 'name: "X"' in shown
    assert 'name: "Y"' in shown
    again = kernel.run(ASK)
    assert again.text.strip() == "[0.0, 2.0, 4.0]"


def test_running_the_cell_again_loses_no_request(kernel, workspace):
    kernel.run(CONFIG)
    kernel.run(times(2, "--instances 2"))
    stop = threading.Event()
    answers, errors = [], []

    def ask():
        tensor = tritonclient.http.InferInput("X", [1], "FP32")
        tensor.set_data_from_numpy(np.ones(1, dtype=np.float32))
        try:
            with tritonclient.http.InferenceServerClient(workspace.runtime().url("http")) as client:
                while not stop.is_set():
                    answers.append(client.infer("times", [tensor]).as_numpy("Y")[0])
        except Exception as problem:  # any at all is a lost request, and is asserted on below
            errors.append(problem)

    callers = [threading.Thread(target=ask) for _ in range(3)]
    for caller in callers:
        caller.start()
    for factor in (3, 4, 5):
        kernel.run(times(factor, "--instances 2"))
        seen = len(answers)
        while len(answers) < seen + 5 and not errors:
            stop.wait(0.01)
    stop.set()
    for caller in callers:
        caller.join()
    assert errors == []
    assert {2.0, 3.0, 4.0, 5.0} <= set(answers)
    assert answers[-1] == 5.0


def test_a_cell_that_does_not_load_leaves_the_old_one_serving(kernel):
    kernel.run(times(2))
    kernel.run(ASK)
    bad = times(3).replace(
        "    def execute", "    def initialize(self, args):\n        1 / 0\n\n    def execute"
    )
    result = kernel.run(bad, fails=True)
    assert re.search(r"Cell In\[\d+\], line 7, in initialize", result.error)
    assert "---->   7         1 / 0" in result.error
    assert "ZeroDivisionError: division by zero" in result.error
    assert "IPython" not in result.error
    assert "run_cell_magic" not in result.error
    assert re.search(r"the version of Cell In\[\d+\] keeps serving", result.text)
    assert kernel.run(ASK).text.strip() == "[0.0, 2.0, 4.0]"
    # Also when its instance dies: what is started again is the version that served.
    assert kernel.run(KILL).error == ""
    assert kernel.run(ASK).text.strip() == "[0.0, 2.0, 4.0]"


def test_a_syntax_error_points_at_the_cell(kernel):
    result = kernel.run("%%model wrong\nclass TritonPythonModel\n    pass\n", fails=True)
    assert "line 2" in result.error
    assert "---->   2 class TritonPythonModel" in result.error
    assert "SyntaxError: expected ':'" in result.error
    assert "nothing serves under this name" in result.text
    shown = kernel.run("%devkit").text
    assert re.search(r"wrong +1 +UNAVAILABLE .*SyntaxError: expected ':'", shown), shown


def test_an_exception_in_execute_shows_the_caller_and_the_cell(kernel):
    kernel.run(CONFIG)
    kernel.run(times("[1][2]"))
    result = kernel.run(
        "x = np.ones(2, np.float32)\n" + 'devkit.infer("times", {"X": x})', fails=True
    )
    assert "Cell In[4], line 2\n---->   2 devkit.infer" in result.error
    assert "Cell In[3], line 10, in execute" in result.error, result.error
    assert "x * [1][2]" in result.error
    assert "IndexError: list index out of range" in result.error


def test_lines_are_those_of_the_version_that_serves(kernel):
    kernel.run(CONFIG)
    kernel.run(times("[1][2]"))
    kernel.run(
        "%%model times\nimport nothing_of_that_name\nclass TritonPythonModel: pass", fails=True
    )
    assert "x * [1][2]" in kernel.run(ASK, fails=True).error


def test_a_name_of_the_kernel_is_no_name_of_the_model(kernel):
    result = kernel.run("%%model m\nclass TritonPythonModel:\n    a = np.ones(1)\n", fails=True)
    assert "NameError: name 'np' is not defined" in result.error
    assert "import or define it inside the %%model cell" in result.error


def test_the_line_of_the_magic_adds_to_the_config_by_hand(kernel):
    assert "config kept" in kernel.run(CONFIG).text
    result = kernel.run(times(2, "--instances 3 --parameter depth=7"))
    assert "3 instances" in result.text
    shown = kernel.run("%devkit config times").text
    assert 'key: "depth"' in shown
    assert "count: 3" in shown


def test_a_config_by_hand_reaches_a_model_that_serves(kernel):
    kernel.run(times(2))
    result = kernel.run(CONFIG)
    assert "X FP32[-1] → Y FP32[-1]" in result.text
    assert kernel.run(ASK).text.strip() == "[0.0, 2.0, 4.0]"


def test_a_config_that_cannot_be_read_shows_its_line(kernel):
    result = kernel.run('%%config m\nbackend: "python"\nmax_batch_sise: 3\n', fails=True)
    assert "max_batch_sise" in result.error


def test_a_plain_function_is_a_model(kernel):
    kernel.run("%%model half\ndef half(X):\n    return {'Y': X / 2}\n")
    result = kernel.run('print(devkit.infer("half", {"X": np.array([2.0, 4.0])})["Y"].tolist())')
    assert "[1.0, 2.0]" in result.text


def test_models_outlive_the_kernel(kernel, new_kernel):
    kernel.run(CONFIG)
    kernel.run(times("(3 if x.sum() < 9 else {}[0])"))
    kernel.close()
    second = new_kernel()
    assert second.run(ASK).text.strip() == "[0.0, 3.0, 6.0]"
    broken = second.run('devkit.infer("times", {"X": np.full(9, 9, np.float32)})', fails=True)
    assert "cell of times, line 10, in execute" in broken.error


def test_the_magics_say_how_they_are_written(kernel):
    assert "%%model NAME" in kernel.run("%devkit help").text
    assert "usage" in kernel.run("%%model\nx = 1", fails=True).error
    assert "No models yet" in kernel.run("%devkit").text
    kernel.run(times(2))
    assert re.search(r"times +1 +READY +1 ", kernel.run("%devkit").text)
    log = kernel.run("%devkit log times")
    assert log.error == ""
    kernel.run("%reload_ext devkit")
    kernel.run("%unload_ext devkit")
    kernel.run("%%model times\nx = 1", fails=True)
