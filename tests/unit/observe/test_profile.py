"""What is said where the system does not let a profiler look."""

from types import SimpleNamespace

import pytest

from devkit.errors import ControlError
from devkit.observe import profile

INSTANCE = SimpleNamespace(name="m_0", pid=7, model=SimpleNamespace(name="m"))


@pytest.mark.parametrize(
    ("said", "message", "remedy"),
    [
        ("Error: Permission Denied: Try running again with elevated permissions", "does not let", "SYS_PTRACE"),
        ("Error: Operation not permitted (os error 1)", "does not let", "ptrace_scope"),
        ("Error: No such process (os error 3)", "ended while", None),
        ("No stacks received", "took no profile", "--idle"),
    ],
)  # fmt: skip
def test_a_failure_of_py_spy_is_explained(said, message, remedy):
    problem = profile._explained(said, 1, INSTANCE)
    assert message in problem.message
    assert (problem.remedy is None) if remedy is None else (remedy in problem.remedy)


def test_without_py_spy_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(profile.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ControlError) as refused:
        profile.program()
    assert "triton-devkit[profile]" in refused.value.remedy


def test_a_stack_begins_at_the_models_own_frames():
    ours = '  File "/x/devkit/stub/process.py", line 1, in run\n    a()\n'
    model = '  File "/m/1/model.py", line 2, in execute\n    b()\n'
    below = '  File "/x/devkit/stub/tensor.py", line 3, in as_numpy\n    c()\n'
    assert profile._trimmed(ours + ours + model + below) == model + below
    assert "waits for requests" in profile._trimmed(ours)
