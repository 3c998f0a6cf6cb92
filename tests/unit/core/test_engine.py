"""The core end to end: real models in real processes, through the engine's door."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from devkit.core.request import SharedPlace
from devkit.core.watcher import Watcher
from devkit.errors import Code, InferError, LoadError, UnknownModelError
from devkit.transport import memory
from tests.unit.core.conftest import CONFIG, DOUBLE, Bench

Make = Callable[..., Bench]


async def started(make: Make, config: str = CONFIG, code: str = DOUBLE, **options: object) -> Bench:
    bench = make(**options)
    bench.write("double", config, code)
    assert await bench.engine.start() == []
    return bench


@pytest.mark.parametrize("method", ["warm", "spawn"])
async def test_a_model_answers(bench: Make, method: str) -> None:
    made = await started(bench, start_method=method)
    (instance,) = made.engine.model("double").instances
    assert instance.started_by == method
    assert (await made.ask("double", [1, 2])).tolist() == [2.0, 4.0]
    assert (await made.ask("double", [])).tolist() == []


@pytest.mark.parametrize("size", [16_384, 16_385, 1_000_000])
async def test_tensors_of_every_size_come_back_whole(bench: Make, size: int) -> None:
    made = await started(bench)
    sent = np.arange(1, size + 1, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(await made.ask("double", sent), sent * 2)
    model = made.engine.model("double")
    assert model.request_slab().used == 0


async def test_kept_arrays_are_never_overwritten(bench: Make) -> None:
    made = await started(bench)
    kept = np.full(50_000, 7, np.float32)
    kept[0] = -4
    await made.ask("double", kept)
    for _ in range(3):
        await made.ask("double", np.full(50_000, 9, np.float32))
    assert made.engine.model("double").request_slab().used > 0
    back = await made.ask("double", [-5])
    np.testing.assert_array_equal(back, kept * 2)
    await made.ask("double", [1])
    assert made.engine.model("double").request_slab().used == 0


async def test_an_exception_fails_the_request_in_the_servers_words(bench: Make) -> None:
    made = await started(bench)
    with pytest.raises(InferError) as failed:
        await made.ask("double", [-1])
    assert failed.value.code is Code.INTERNAL
    file = made.folder / "double" / "1" / "model.py"
    line = DOUBLE.splitlines().index(
        '            if first == -1: raise ValueError("asked to fail")'
    )
    assert failed.value.message == (
        "Failed to process the request(s) for model 'double_0', message: ValueError: asked to "
        f"fail\n\nAt:\n  {file}({line + 1}): execute\n"
    )
    assert (await made.ask("double", [1])).tolist() == [2.0]


async def test_instances_are_processes_that_run_at_once(bench: Make) -> None:
    made = await started(bench, CONFIG + "instance_group [ { count: 3 } ]")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(made.ask("double", [-3]) for _ in range(3)))
    together = loop.time() - began
    began = loop.time()
    for _ in range(3):
        await made.ask("double", [-3])
    assert together < loop.time() - began
    pids = {float((await made.ask("double", [-6]))[0]) for _ in range(6)}
    assert pids == {float(np.float32(i.pid)) for i in made.engine.model("double").instances}


async def test_dynamic_batching_shares_an_execute(bench: Make) -> None:
    config = (
        CONFIG.replace("dims: [ -1 ]", "dims: [ 1 ]") + "max_batch_size: 8\ndynamic_batching { }"
    )
    made = await started(bench, config)
    first = made.send("double", [[-3]])
    sizes = await asyncio.gather(*(made.ask("double", [[-7]]) for _ in range(5)))
    assert [size.tolist() for size in sizes] == [[5.0]] * 5
    await first
    counters = made.engine.model("double").counters
    assert (counters.inference_count, counters.execution_count) == (6, 2)
    assert sorted(counters.batches) == [1, 5]


async def test_a_death_fails_its_requests_and_the_instance_returns(bench: Make) -> None:
    made = await started(bench)
    pid = made.engine.model("double").instances[0].pid
    with pytest.raises(InferError, match=r"Stub process 'double_0' is not healthy\."):
        await made.ask("double", [-2])
    assert (await made.ask("double", [1])).tolist() == [2.0]
    assert made.engine.model("double").instances[0].pid != pid


async def test_requests_that_wait_survive_a_death(bench: Make) -> None:
    made = await started(bench)
    doomed = made.send("double", [-8])
    waiting = [made.ask("double", [n]) for n in range(1, 6)]
    assert (await doomed).error is not None
    answers = await asyncio.gather(*waiting)
    assert [answer.tolist() for answer in answers] == [[2.0 * n] for n in range(1, 6)]


async def test_an_idle_instance_killed_from_outside_returns(bench: Make) -> None:
    made = await started(bench)
    instance = made.engine.model("double").instances[0]
    os.kill(instance.pid, signal.SIGKILL)
    await asyncio.wait_for(instance.ended.wait(), 10)
    assert (await made.ask("double", [1])).tolist() == [2.0]


async def test_reload_swaps_without_losing_a_request(bench: Make) -> None:
    made = await started(bench)
    answers: list[float] = []
    stop = asyncio.Event()

    async def client() -> None:
        while not stop.is_set():
            answers.append(float((await made.ask("double", [1]))[0]))

    clients = [asyncio.create_task(client()) for _ in range(4)]
    await asyncio.sleep(0.05)
    made.write("double", code=DOUBLE.replace("FACTOR = 2", "FACTOR = 3"))
    await made.engine.load("double")
    await asyncio.sleep(0.05)
    stop.set()
    await asyncio.gather(*clients)
    assert set(answers) == {2.0, 3.0}
    assert answers == sorted(answers)


async def test_a_save_that_does_not_load_keeps_the_old_version(bench: Make) -> None:
    made = await started(bench)
    made.write("double", code="class TritonPythonModel:\n    def execute(self, requests)\n")
    with pytest.raises(LoadError) as failed:
        await made.engine.load("double")
    assert "SyntaxError: expected ':' (model.py, line 2)" in failed.value.message
    assert failed.value.line
    assert failed.value.line.endswith("model.py:2")
    assert (await made.ask("double", [1])).tolist() == [2.0]
    made.write("double", code=DOUBLE.replace("FACTOR = 2", "FACTOR = 5"))
    await made.engine.load("double")
    assert (await made.ask("double", [1])).tolist() == [5.0]


async def test_unchanged_files_are_no_work_unless_forced(bench: Make) -> None:
    made = await started(bench)
    pid = made.engine.model("double").instances[0].pid
    await made.engine.load("double")
    assert made.engine.model("double").instances[0].pid == pid
    await made.engine.reload("double")
    assert made.engine.model("double").instances[0].pid != pid


async def test_scale_up_and_down_keeps_serving(bench: Make) -> None:
    made = await started(bench)
    pid = made.engine.model("double").instances[0].pid
    await made.engine.scale("double", 3)
    model = made.engine.model("double")
    assert [instance.name for instance in model.instances] == ["double_0", "double_1", "double_2"]
    assert model.instances[0].pid == pid
    await made.engine.scale("double", 1)
    assert [instance.pid for instance in made.engine.model("double").instances] == [pid]
    assert (await made.ask("double", [1])).tolist() == [2.0]


async def test_scale_outlives_a_reload_until_the_config_changes(bench: Make) -> None:
    made = await started(bench)
    await made.engine.scale("double", 2)
    await made.engine.reload("double")
    assert len(made.engine.model("double").instances) == 2
    made.write("double", CONFIG + "instance_group [ { count: 1 } ]")
    await made.engine.load("double")
    assert len(made.engine.model("double").instances) == 1


async def test_unload_lets_what_runs_finish(bench: Make) -> None:
    made = await started(bench)
    running = made.send("double", [-3])
    await made.engine.unload("double")
    with pytest.raises(UnknownModelError, match="'double' has no available versions"):
        await made.ask("double", [1])
    assert (await running).error is None
    assert [(row.state, row.reason) for row in made.engine.index()] == [("UNAVAILABLE", "unloaded")]


async def test_failures_at_start_are_told_and_others_serve(bench: Make) -> None:
    made = bench()
    made.write("double")
    made.write("broken", code="import nothing_of_that_name\n")
    (failure,) = await made.engine.start()
    assert failure.message.startswith(
        "load failed for model 'broken': version 1 is at UNAVAILABLE state: Internal: "
        "ModuleNotFoundError: No module named 'nothing_of_that_name'\n\nAt:\n"
    )
    assert not made.engine.ready()
    assert (await made.ask("double", [1])).tolist() == [2.0]


async def test_only_the_highest_version_is_served(bench: Make) -> None:
    made = bench()
    made.write("double", version=1)
    made.write("double", code=DOUBLE.replace("FACTOR = 2", "FACTOR = 9"), version=12)
    await made.engine.start()
    assert (await made.ask("double", [1])).tolist() == [9.0]
    with pytest.raises(UnknownModelError, match="'double' version 1 is not found"):
        made.send("double", [1], model_version="1")


async def test_withdrawing_a_queued_request(bench: Make) -> None:
    made = await started(bench)
    running, waiting = made.send("double", [-3]), made.send("double", [1])
    made.engine.withdraw(waiting.request)  # type: ignore[attr-defined]
    answer = await waiting
    assert answer.error is not None
    assert answer.error.code is Code.CANCELLED
    assert (await running).error is None


async def test_the_runtimes_shared_memory_is_swept_after_a_kill(bench: Make) -> None:
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    left = memory.DIRECTORY / f"devkit-{gone}-m-requests"
    left.write_bytes(b"left by a runtime that was killed")
    await started(bench)
    assert not left.exists()


async def test_an_override_serves_other_files_without_touching_the_repository(bench: Make) -> None:
    made = await started(bench)
    files = {"1/model.py": DOUBLE.replace("FACTOR = 2", "FACTOR = 4").encode()}
    config = (
        '{"backend": "python", "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}], '
    )
    config += '"output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}]}'
    await made.engine.load("double", config, files)
    assert (await made.ask("double", [1])).tolist() == [4.0]
    scratch = Path(made.engine.model("double").file)
    await made.engine.reload("double")
    assert (await made.ask("double", [1])).tolist() == [2.0]
    assert not scratch.exists()


async def test_a_death_after_a_save_that_does_not_load_restarts_what_served(bench: Make) -> None:
    made = await started(bench)
    home = made.write(
        "double", code="import helper\n" + DOUBLE.replace("FACTOR = 2", "FACTOR = helper.F")
    )
    (home / "1" / "helper.py").write_text("F = 7\n")
    (home / "1" / "weights.bin").write_bytes(b"data")
    await made.engine.load("double")
    (home / "1" / "helper.py").write_text("F = = 8\n")
    made.write("double", code="this does not load")
    with pytest.raises(LoadError):
        await made.engine.load("double")
    instance = made.engine.model("double").instances[0]
    os.kill(instance.pid, signal.SIGKILL)
    await asyncio.wait_for(instance.ended.wait(), 10)
    assert (await made.ask("double", [1])).tolist() == [7.0]


async def test_span_is_there_inside_a_model(bench: Make) -> None:
    code = DOUBLE.replace(
        "        responses = []",
        "        import devkit\n        with devkit.span('work'):\n            responses = []",
    )
    made = await started(bench, code=code)
    assert (await made.ask("double", [1])).tolist() == [2.0]


@pytest.mark.parametrize("method", ["warm", "spawn"])
async def test_a_child_that_outlives_its_model_does_not_hide_the_death(
    bench: Make, method: str
) -> None:
    code = DOUBLE.replace(
        "if first == -2: os._exit(3)",
        "if first == -2 and os.fork(): os._exit(3)\n            if first == -2: time.sleep(3)",
    )
    made = await started(bench, code=code, start_method=method)
    with pytest.raises(InferError, match=r"Stub process 'double_0' is not healthy\."):
        await asyncio.wait_for(made.ask("double", [-2]), 2.0)
    assert (await asyncio.wait_for(made.ask("double", [1]), 2.0)).tolist() == [2.0]


async def test_a_killed_warm_process_is_replaced(bench: Make) -> None:
    made = await started(bench)
    for pid in made.engine.launcher.warm_pids():
        os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.2)
    assert (await made.ask("double", [1])).tolist() == [2.0]
    await made.engine.reload("double")
    assert made.engine.model("double").instances[0].started_by == "warm"


async def test_a_long_print_without_a_line_end_comes_in_pieces(bench: Make) -> None:
    code = DOUBLE.replace("time.sleep(0.3)", "print('x' * (8 << 20), end='', flush=True)")
    made = await started(bench, code=code)
    lines: list[str] = []
    made.engine.taps.logs.append(lambda event: lines.append(event.text))
    await made.ask("double", [-3])
    assert max(map(len, lines)) <= 512 * 1024
    assert sum(map(len, lines)) > 7 << 20


async def test_regions_that_are_gone_leave_no_mapping_in_the_model(
    bench: Make,
) -> None:
    made = await started(bench)
    stub = made.engine.model("double").instances[0].pid
    for turn in range(5):
        file = memory.DIRECTORY / f"devkit-{os.getpid()}-test-{turn}"
        file.write_bytes(np.full(1024, turn, np.float32).tobytes())
        try:
            region = memory.Region(file, size=4096)
            place = SharedPlace(region, 0, 4096)
            answer = await made.ask("double", np.zeros(1024), buffer=place)
            assert answer.tolist() == [2.0 * turn] * 1024
            os.truncate(file, 0)
            with pytest.raises(InferError, match="Invalid shared memory region"):
                await made.ask("double", np.zeros(1024), buffer=place)
            region.close()
        finally:
            file.unlink()
    assert Path(f"/proc/{stub}/maps").read_text().count(f"devkit-{os.getpid()}-test-") == 1


async def test_a_watch_that_fails_is_told_and_begins_anew(
    bench: Make, caplog: pytest.LogCaptureFixture
) -> None:
    made = await started(bench)
    watcher = Watcher(made.engine, [made.folder])
    watcher.start()
    await asyncio.sleep(0.2)
    odd = os.path.join(os.fsencode(made.folder), b"b\xff")  # watchfiles takes no such name
    os.makedirs(odd + b"/1")
    await asyncio.sleep(1.0)
    assert "the repositories' watch fails" in caplog.text
    assert [row.name for row in made.engine.index()] == ["double"]
    os.rmdir(odd + b"/1")
    os.rmdir(odd)
    await asyncio.sleep(1.5)
    made.write("double", code=DOUBLE.replace("FACTOR = 2", "FACTOR = 3"))
    for _ in range(100):
        await asyncio.sleep(0.05)
        if (await made.ask("double", [1])).tolist() == [3.0]:
            break
    await watcher.stop()
    assert (await made.ask("double", [1])).tolist() == [3.0]


HANGS = DOUBLE.replace("self.kept = []", "time.sleep(1000)")


@pytest.mark.parametrize("method", ["warm", "spawn"])
async def test_a_load_that_hangs_gives_way_to_the_next(bench: Make, method: str) -> None:
    made = await started(bench, start_method=method)
    made.write("double", code=HANGS)
    hanging = asyncio.create_task(made.engine.load("double"))
    await asyncio.sleep(1.2)
    assert (await made.ask("double", [1])).tolist() == [2.0]
    made.write("double", code=DOUBLE.replace("FACTOR = 2", "FACTOR = 3"))
    await asyncio.wait_for(made.engine.load("double"), 20)
    assert (await made.ask("double", [1])).tolist() == [3.0]
    with pytest.raises(LoadError, match="a newer load took its place"):
        await hanging


async def test_a_load_that_hangs_can_be_unloaded(bench: Make) -> None:
    made = await started(bench)
    made.write("double", code=HANGS)
    hanging = asyncio.create_task(made.engine.load("double"))
    await asyncio.sleep(0.3)
    await asyncio.wait_for(made.engine.unload("double"), 20)
    with pytest.raises(LoadError, match="it was unloaded"):
        await hanging
    assert made.engine.models() == []
