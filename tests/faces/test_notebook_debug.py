"""`%debug_model` in a real kernel: what a cell shows, what its buttons do, what comes of a failure."""

MODEL = """%%model weigh
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            factor = {6.0: 2}[float(x.sum())]
            y = x * factor
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return responses
"""
X = "x = np.array([1, 2, 3], dtype=np.float32)"
CLICK = """
import re, time

def click(name):
    panel._widget._buttons[name].click()

def shown():
    widget = panel._widget
    parts = (widget._head, widget._source, widget._variables, widget._answer)
    text = "".join(part.value for part in parts)
    return re.sub("<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)

def await_shown(text):
    until = time.monotonic() + 30
    while text not in shown() and time.monotonic() < until:
        time.sleep(0.02)
    print(shown())
"""


def test_a_cell_steps_and_the_kernel_stays_free(kernel):
    kernel.run(MODEL)
    kernel.run(X)
    # The very first request, which the model takes its config from, may be the one that stops.
    opened = kernel.run('panel = %debug_model weigh --break 11 --send {"X": x}')
    assert "weigh_0: stopped at a breakpoint, Cell In[" in opened.text
    assert "●→  11              y = x * factor" in opened.text
    assert "x = float32[3] 1 … 3, mean 2  [1, 2, 3]" in opened.text

    assert "factor  " in kernel.run("panel.variables()").text
    assert "[3.0, 6.0, 9.0]" in kernel.run('print((panel.tensor("x") * 3).tolist())').text
    other = 'print(devkit.infer("weigh", {"X": x})["Y"].tolist(), panel.told.state)'
    assert "[2.0, 4.0, 6.0] stopped" in kernel.run(other).text

    kernel.run(CLICK)
    kernel.run('panel._widget._ask.value = "factor = 10"')
    seen = kernel.run('click("next"); await_shown("after a step")').text
    assert "after a step" in seen
    assert "float32[3] 10 … 30, mean 20" in seen
    kernel.run('panel._widget._ask.value = "nonsense("')
    assert "SyntaxError" in kernel.run("print(panel._widget._result.value)").text
    kernel.run('click("continue"); await_shown("running")')
    assert "[10.0, 20.0, 30.0]" in kernel.run('print(panel.answer()["Y"].tolist())').text
    assert "[10. 20. 30.]" in kernel.run('await_shown("[10. 20. 30.]")').text
    assert "running" in kernel.run("panel").text
    assert "weigh_0" in kernel.run("%debug_model").text
    assert "detached from weigh_0" in kernel.run("%debug_model weigh --off").text
    assert "ended" in kernel.run("print(panel.told.state)").text
    assert "()" in kernel.run("print(devkit.connect().breakpoints().breakpoints)").text


def test_a_failure_is_looked_at_afterwards(kernel):
    kernel.run(MODEL)
    kernel.run(X)
    assert "no config yet" in kernel.run("%debug_model weigh", fails=True).error
    assert "no request to 'weigh' has failed" in (
        kernel.run("%debug_model weigh --failure", fails=True).error
    )
    kernel.run('devkit.infer("weigh", {"X": 10 * x})', fails=True)
    opened = kernel.run("panel = %debug_model weigh --failure")
    assert "stopped at an exception, Cell In[" in opened.text
    assert "KeyError: 60.0" in opened.text
    assert "→  10  " in opened.text
    assert "[10, 20, 30]" in opened.text
    kernel.run("%debug_model --off")
    assert "None." in kernel.run("%debug_model").text
    assert "[2.0, 4.0, 6.0]" in (
        kernel.run('print(devkit.infer("weigh", {"X": x})["Y"].tolist())').text
    )


def test_the_line_says_how_it_is_written(kernel):
    assert "--send {...}" in kernel.run("%debug_model --help").text
    kernel.run(MODEL)
    for line in ("weigh --what", "weigh --send 1", "--break 3", "weigh --break 99", "absent",
                 "weigh --exceptions some"):  # fmt: skip
        assert "---" in kernel.run(f"%debug_model {line}", fails=True).error
    assert "None." in kernel.run("%debug_model").text
    assert "()" in kernel.run("print(devkit.connect().breakpoints().breakpoints)").text
