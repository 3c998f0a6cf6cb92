"""A debugger on real stubs, in every mode: stop, look, change, step, go on, leave."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from devkit.errors import DebugError, InferError, LoadError
from tests.support.live import eventually
from tests.unit.debug.conftest import (
    ASYNC,
    CALLER,
    DECOUPLED,
    FACTOR,
    PRODUCT,
    RAISE,
    SCALE,
    Waiting,
    Workshop,
    line_of,
)


def test_a_changed_variable_changes_the_answer_while_others_are_served(workshop: Workshop):
    session = workshop.stop_at("scale", PRODUCT)
    asked = workshop.later("scale")
    told = session.wait_stopped()
    assert told.line == f"{workshop.file('scale')}:{PRODUCT}"
    assert told.function == "execute"
    assert told.reason == "breakpoint"

    eventually(lambda: session.refresh().spare)
    assert [workshop.ask("scale", value) for value in (1, 2, 3)] == [2, 4, 6]
    assert workshop.states("scale")[told.instance] == "debugging"
    assert workshop.client.model("scale").state == "READY"

    found = session.locals()
    assert found["factor"].value == "2"
    assert found["x"].tensor is not None
    assert (found["x"].tensor.dtype, found["x"].tensor.shape) == ("float32", (1,))
    assert session.set("factor", "10").value == "10"
    assert session.step().line == f"{workshop.file('scale')}:{PRODUCT + 1}"
    assert asked.waits
    session.resume()
    assert asked.answer() == 50


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_marked_request_stops_and_no_other(workshop: Workshop, door: str):
    workshop.client.set_breakpoint(workshop.file("pair"), PRODUCT)
    session = workshop.client.debug("pair", take="marked")
    module = triton_http if door == "http" else triton_grpc
    url = workshop.client.runtime.url(door)

    def ask(**headers: str) -> float:
        with module.InferenceServerClient(url) as client:
            tensor = module.InferInput("X", [1], "FP32")
            tensor.set_data_from_numpy(np.array([5], np.float32))
            result = client.infer("pair", [tensor], headers=headers or None)
            return float(result.as_numpy("Y")[0])

    assert [ask() for _ in range(4)] == [10] * 4
    marked = Waiting(lambda: ask(**{"devkit-debug": "1"}))
    told = session.wait_stopped()
    assert told.instance in workshop.states("pair")
    assert [ask() for _ in range(4)] == [10] * 4
    session.resume()
    assert marked.answer() == 10


def test_the_next_request_stops_and_the_one_after_it_does_not(workshop: Workshop):
    session = workshop.stop_at("scale", PRODUCT)
    first = workshop.later("scale", 1)
    session.wait_stopped()
    session.resume()
    assert first.answer() == 2
    assert workshop.ask("scale", 2) == 4
    session.take("next")
    again = workshop.later("scale", 3)
    session.wait_stopped()
    session.resume()
    assert again.answer() == 6


def test_infer_with_debug_goes_to_the_debugger(workshop: Workshop):
    workshop.client.set_breakpoint(workshop.file("scale"), PRODUCT)
    session = workshop.client.debug("scale", take="marked")
    asked = workshop.later("scale", debug=True)
    session.wait_stopped()
    assert session.evaluate("x.sum() * factor").value.endswith("(10.0)")
    session.resume()
    assert asked.answer() == 10


def test_conditions_hits_and_log_points(workshop: Workshop):
    file = workshop.file("scale")
    session = workshop.client.debug("scale", take="every")
    kept = workshop.client.set_breakpoint(file, PRODUCT, condition="x[0] > 6")
    assert kept.verified
    assert workshop.ask("scale", 5) == 10
    asked = workshop.later("scale", 7)
    session.wait_stopped()
    session.resume()
    asked.answer()

    workshop.client.set_breakpoint(file, PRODUCT, hits="3")
    assert [workshop.ask("scale", value) for value in (1, 2)] == [2, 4]
    asked = workshop.later("scale", 3)
    session.wait_stopped()
    session.resume()
    asked.answer()

    workshop.client.set_breakpoint(file, PRODUCT, log="factor is {factor}")
    assert workshop.ask("scale", 1) == 2
    eventually(
        lambda: [
            line for line in workshop.client.logs("scale") if line.text.strip() == "factor is 2"
        ]
    )


def test_it_stops_at_an_exception_that_leaves_the_model(workshop: Workshop):
    workshop.client.stop_at_exceptions(uncaught=True)
    session = workshop.client.debug("scale")
    asked = workshop.later("scale", -1)
    told = session.wait_stopped()
    assert told.reason == "exception"
    assert told.line == f"{workshop.file('scale')}:{RAISE}"
    assert "ValueError: negative" in session.exception()
    assert session.locals()["y"].value.startswith("array([-2.]")
    session.resume()
    with pytest.raises(InferError, match="negative"):
        asked.answer()


def test_break_on_execute_follows_the_model_and_not_a_line(workshop: Workshop):
    workshop.client.set_breakpoint(model="scale")
    session = workshop.client.debug("scale")
    asked = workshop.later("scale")
    told = session.wait_stopped()
    assert told.line == f"{workshop.file('scale')}:{line_of(SCALE, 'answers = []')}"
    session.resume()
    assert asked.answer() == 10


def test_async_execute(workshop: Workshop):
    session = workshop.stop_at("soon", line_of(ASYNC, "y = x * factor"))
    asked = workshop.later("soon")
    told = session.wait_stopped()
    assert told.function == "execute"
    session.set("factor", "3")
    session.step()
    session.resume()
    assert asked.answer() == 15


def test_a_decoupled_models_own_thread(workshop: Workshop):
    session = workshop.stop_at("stream", line_of(DECOUPLED, "y = x * number"))
    asked = Waiting(
        lambda: [
            float(each["Y"][0])
            for each in workshop.client.stream("stream", {"X": np.array([5], np.float32)})
        ]
    )
    told = session.wait_stopped()
    assert told.function == "answer"
    session.set("number", "7")
    workshop.client.clear_breakpoints()
    session.resume()
    assert asked.answer() == [35, 5, 10]


def test_the_stack_goes_on_in_the_model_that_called(workshop: Workshop):
    callee = workshop.stop_at("scale", PRODUCT)
    asked = workshop.later("caller")
    told = callee.wait_stopped()
    (link,) = told.chain
    assert (link.model, link.instance) == ("caller", "caller_0")
    assert link.line == f"{workshop.file('caller')}:{line_of(CALLER, 'call.exec()')}"
    callee.resume()
    assert asked.answer() == 11


def test_a_batch_stops_and_others_form_theirs(workshop: Workshop):
    session = workshop.stop_at("batched", PRODUCT)

    def ask(value: float) -> float:
        found = workshop.client.infer("batched", {"X": np.array([[value]], np.float32)})
        return float(found["Y"].flat[0])

    asked = Waiting(lambda: ask(1))
    session.wait_stopped()
    eventually(lambda: session.refresh().spare)
    others = [Waiting(lambda value=value: ask(value)) for value in (2, 3, 4)]
    assert [each.answer() for each in others] == [4, 6, 8]
    session.resume()
    assert asked.answer() == 2


def test_the_clock_of_a_sequence_stands_while_it_is_stopped(workshop: Workshop):
    session = workshop.stop_at("sequence", PRODUCT)
    session.take("every")

    def ask(**options: object) -> float:
        found = workshop.client.infer(
            "sequence", {"X": np.array([[1]], np.float32)}, sequence_id=7, **options
        )
        return float(found["Y"].flat[0])

    asked = Waiting(lambda: ask(sequence_start=True))
    session.wait_stopped()
    eventually(lambda: session.refresh().seconds > 0.8)  # longer than a sequence may be silent
    session.resume()
    assert asked.answer() == 2
    workshop.client.clear_breakpoints()
    assert ask(sequence_end=True) == 2


def test_time_in_the_debugger_is_nobodys_compute_time(workshop: Workshop):
    before = workshop.client.statistics("gather")[0]["inference_stats"]["compute_infer"]
    session = workshop.stop_at("gather", PRODUCT)
    asked = workshop.later("gather")
    session.wait_stopped()
    eventually(lambda: session.refresh().seconds > 1.5)
    session.resume()
    asked.answer()
    after = workshop.client.statistics("gather")[0]["inference_stats"]["compute_infer"]
    took = int(after.get("ns", 0)) - int(before.get("ns", 0))
    assert 0 <= took < 500_000_000


def test_a_reload_asks_first_and_by_force_goes_on(workshop: Workshop):
    session = workshop.stop_at("gather", PRODUCT)
    asked = workshop.later("gather")
    session.wait_stopped()
    with pytest.raises(LoadError, match="stands in a debugger"):
        workshop.client.reload("gather")
    assert asked.waits
    workshop.client.reload("gather", force=True)
    assert asked.answer() == 10
    told = eventually(lambda: (one := session.refresh()).state == "running" and one)
    assert told.pid in {one.pid for one in workshop.client.model("gather").instances}
    session.take("next")
    asked = workshop.later("gather")
    session.wait_stopped()
    session.resume()
    assert asked.answer() == 10


def test_breakpoints_follow_edited_lines_over_a_reload(workshop: Workshop):
    workshop.write("edited", SCALE)
    workshop.client.load("edited")
    file = workshop.file("edited")
    kept = workshop.client.set_breakpoint(file, PRODUCT)
    session = workshop.client.debug("edited")
    workshop.write("edited", SCALE.replace("import triton", "# a line more\nimport triton"))
    workshop.client.reload("edited")
    (moved,) = workshop.client.breakpoints().breakpoints
    assert (moved.id, moved.line) == (kept.id, PRODUCT + 1)
    eventually(lambda: session.refresh().state == "running")
    asked = workshop.later("edited")
    assert session.wait_stopped().line == f"{file}:{PRODUCT + 1}"
    session.resume()
    assert asked.answer() == 10
    session.detach()
    workshop.client.unload("edited")


def test_a_process_that_is_killed_while_stopped_is_debugged_again(workshop: Workshop):
    session = workshop.stop_at("gather", PRODUCT)
    asked = workshop.later("gather")
    pid = session.wait_stopped().pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(InferError, match="not healthy"):
        asked.answer()
    told = eventually(lambda: (one := session.refresh()).state == "running" and one)
    assert told.pid != pid
    session.take("next")
    again = workshop.later("gather")
    session.wait_stopped()
    session.resume()
    assert again.answer() == 10


def test_when_the_last_face_has_gone_the_instance_goes_on(workshop: Workshop):
    session = workshop.stop_at("scale", PRODUCT)
    events = workshop.client.events(kinds=("debug",), debugger=session.id)
    next(events)
    asked = workshop.later("scale")
    session.wait_stopped()
    events.close()
    assert asked.answer() == 10
    eventually(lambda: not workshop.client.debug_sessions())


def test_a_continue_with_nothing_stopped_is_refused_and_does_no_harm(workshop: Workshop):
    session = workshop.stop_at("scale", PRODUCT)
    with pytest.raises(DebugError, match="nothing is stopped"):
        session.resume()
    asked = workshop.later("scale")
    session.wait_stopped()
    session.resume()
    assert asked.answer() == 10


def test_pause_and_go_to_another_line(workshop: Workshop):
    session = workshop.stop_at("scale", PRODUCT)
    asked = workshop.later("scale")
    session.wait_stopped()
    session.set("x", "x + 1")
    session.step()
    session.move("goto", line=FACTOR)
    assert eventually(lambda: (one := session.refresh()).state == "stopped" and one).line == (
        f"{workshop.file('scale')}:{FACTOR}"
    )
    workshop.client.clear_breakpoints()
    session.resume()
    assert asked.answer() == 12


def test_a_large_list_comes_in_pages(workshop: Workshop):
    session = workshop.stop_at("scale", PRODUCT)
    asked = workshop.later("scale")
    session.wait_stopped()
    found = session.evaluate("list(range(1000))")
    page = session.variables(found.reference, start=500, count=3)
    assert [each.value for each in page] == ["500", "501", "502"]
    session.resume()
    asked.answer()


def test_after_the_debugger_nothing_is_left_of_it(workshop: Workshop):
    import psutil

    session = workshop.stop_at("scale", PRODUCT)
    asked = workshop.later("scale")
    session.wait_stopped()
    process = psutil.Process(session.told.pid)
    assert [one for one in process.net_connections() if one.status == "ESTABLISHED"]
    session.resume()
    asked.answer()
    session.detach()
    eventually(lambda: not process.net_connections())
    eventually(lambda: list(workshop.states("scale").values()) == ["ready"])
    assert workshop.ask("scale") == 10


def test_a_runtime_may_allow_no_debugger(tmp_path):
    from tests.support.live import live

    with (
        live("--no-debug", models={"scale": SCALE}) as runtime,
        pytest.raises(DebugError, match="allows no debugger"),
    ):
        runtime.client().debug("scale")


def test_a_step_into_exec_stops_in_the_callee(workshop: Workshop):
    line = line_of(CALLER, "call.exec()")
    caller = workshop.stop_at("caller", line)
    asked = workshop.later("caller")
    told = caller.wait_stopped()
    assert told.callee == "scale"
    caller.move("step_in", into=told.callee)
    callee = next(one for one in workshop.client.debug_sessions() if one.told.model == "scale")
    assert callee.wait_stopped().chain[0].model == "caller"
    callee.resume()
    assert caller.wait_stopped().line == f"{workshop.file('caller')}:{line + 1}"
    caller.resume()
    assert asked.answer() == 11


def test_several_faces_share_a_session(workshop: Workshop):
    session = workshop.stop_at("scale", PRODUCT)
    other = workshop.runtime.client().debug("scale")
    assert other.id == session.id
    asked = workshop.later("scale")
    assert other.wait_stopped().line == session.wait_stopped().line
    other.resume()
    assert asked.answer() == 10
    assert eventually(lambda: session.refresh().state == "running")
