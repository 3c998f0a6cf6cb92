"""While requests run: cancellation, rescheduling, custom metrics, the log, ensembles."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from tests.parity.asking import (
    Case,
    GivenUp,
    Logged,
    Metrics,
    Quiet,
    Stream,
    Together,
    get,
    given,
    grpc_infer,
    infer,
    message,
    post,
    replacing,
    run,
    run_message,
    run_stream,
)


def _whole(text: str) -> str:
    # Which instance is free first is chance.
    answer = json.loads(re.sub("callee_pair_0_[01]", "callee_pair_0_N", text))
    for part in answer.get("answers", [answer]):
        with contextlib.suppress(ValueError, KeyError):
            body = json.loads(part["body"])
            body["outputs"].sort(key=lambda output: output["name"])
            part["body"] = body
        for said in part.get("messages", [part]):
            response = said.get("infer_response", said.get("message", {}))
            outputs = response.get("outputs", ())
            pairs = zip(outputs, response.get("raw_output_contents", outputs), strict=True)
            ordered = sorted(pairs, key=lambda pair: pair[0]["name"])
            if ordered:
                response["outputs"], response["raw_output_contents"] = map(
                    list, zip(*ordered, strict=True)
                )
    return json.dumps(answer)


def running(name: str, *asked: Any, **more: Any) -> Case:
    return Case(name, asked, "3", setup="contract", issue=3, **more)


# -- cancellation ---------------------------------------------------------------------------------

WAITS = """\
print("up", WORD, flush=True)
for _ in range(40):
    if ASKED.is_cancelled():
        print("gave up", WORD, flush=True)
        break
    SLEEP(0.05)
else:
    print("went on", WORD, flush=True)
"""


def waits(word: str, end: str, asked: str = "requests[0]", sleep: str = "time.sleep") -> str:
    code = WAITS.replace("WORD", repr(word)).replace("ASKED", asked).replace("SLEEP", sleep)
    return f"{code}{end}"


def given_up(word: str, request: Any, **more: Any) -> GivenUp:
    return GivenUp(request, f"up {word}", (f"gave up {word}", f"went on {word}"), **more)


ANSWER = "return [text('x')]"
SEND = "requests[0].get_response_sender().send(text('x'), FINAL)"
OUTER = f"print('outer', flush=True)\nask('callee', CODE).exec()\n{ANSWER}"
CHILD = waits("child", ANSWER)
MANY = waits("many", SEND, "requests[0].get_response_sender()")
CANCELLED = [
    running("cancel: unary", given_up("unary", run_message("script", waits("unary", ANSWER)))),
    running(
        "cancel: answers CANCELLED",
        given_up(
            "code", run_message("script", waits("code", "return [fails('gone', 'CANCELLED')]"))
        ),
        run("script", ANSWER),
    ),
    running(
        "cancel: stream",
        given_up(
            "stream",
            run_message("script_decoupled", waits("stream", SEND)),
            stream=True,
        ),
    ),
    running(
        "cancel: stream, asked of the sender",
        given_up("many", run_message("script_decoupled", MANY), stream=True),
    ),
    running(
        "cancel: coroutine",
        given_up(
            "coroutine",
            run_message(
                "script_decoupled_async",
                waits("coroutine", SEND, "requests[0]", "await asyncio.sleep"),
            ),
            stream=True,
        ),
    ),
    running(
        "cancel: generate_stream",
        given_up(
            "generate",
            post("/v2/models/script_decoupled/generate_stream", {"CODE": waits("generate", SEND)}),
        ),
    ),
    running("cancel: HTTP", given_up("http", run("script", waits("http", ANSWER)))),
    running(
        "cancel: passed on to a call",
        given_up("child", run_message("script", OUTER.replace("CODE", repr(CHILD)))),
    ),
    running(
        "cancel: a step of an ensemble",
        given_up(
            "step",
            message("chain", [("FIRST", "BYTES", [1], [waits("step", ANSWER).encode()])]),
        ),
    ),
]

# -- rescheduling ---------------------------------------------------------------------------------

COUNTS = """\
answers = []
for r in requests:
    seen = self.kept[r.request_id()] = self.kept.get(r.request_id(), 0) + 1
    if seen < 3:
        r.set_release_flags(RESCHEDULE)
        answers.append(None)
    else:
        answers.append(text([self.kept.pop(r.request_id()), r.correlation_id() > 0]))
return answers
"""
SENDS = """\
for r in requests:
    seen = self.kept[r.request_id()] = self.kept.get(r.request_id(), 0) + 1
    s = r.get_response_sender()
    s.send(text(seen))
    if seen < 3:
        r.set_release_flags(RESCHEDULE)
    else:
        del self.kept[r.request_id()]
        s.send(flags=FINAL)
"""
RESCHEDULED = [
    running("reschedule: three times", run("again", COUNTS, id="one")),
    running("reschedule: two requests", Together((run("again", COUNTS, id="a"), run("again", COUNTS, id="b")))),
    running("reschedule: decoupled", run_stream("again_decoupled", SENDS)),
    running("reschedule: decoupled, empty final", run_stream("again_decoupled", SENDS, empty_final=True)),
    running("reschedule: with a response", run("again", "requests[0].set_release_flags(RESCHEDULE)\nreturn [text('x')]")),
    running("reschedule: wrong flags", run("script", "return [text(str(tried(lambda: requests[0].set_release_flags('x')))[:40])]")),
]  # fmt: skip

# -- custom metrics -------------------------------------------------------------------------------

FAMILY = """\
family = pb_utils.MetricFamily(name=NAME, description="what it is", kind=pb_utils.MetricFamily.KIND)
metric = family.Metric(labels=LABELS)
"""


def family(name: str, kind: str, labels: str = "{'a': 'x', 'b': 'y'}") -> str:
    code = FAMILY.replace("NAME", repr(name)).replace("KIND", kind).replace("LABELS", labels)
    return f"{code}self.kept[{name!r}] = [family, metric]\n"


def metric(name: str, code: str, pattern: str) -> Case:
    return running(
        f"metric: {name}",
        run("script", f"{code}\nreturn [text(said)]"),
        Metrics(pattern),
    )


METRICS = [
    metric(
        "counter",
        family("parity_counter", "COUNTER") + "metric.increment(2)\nmetric.increment(0.5)\nsaid = metric.value()",
        r"^.*parity_counter.*$",
    ),
    metric(
        "gauge",
        family("parity_gauge", "GAUGE") + "metric.set(5)\nmetric.increment(-7.25)\nsaid = metric.value()",
        r"^.*parity_gauge.*$",
    ),
    metric(
        "without labels",
        family("parity_bare", "GAUGE", "{}") + "said = metric.value()",
        r"^.*parity_bare.*$",
    ),
    metric(
        "two of one family",
        family("parity_two", "COUNTER") + "other = family.Metric(labels={'a': 'z'})\n"
        "other.increment(3)\nself.kept['other'] = other\nsaid = [metric.value(), other.value()]",
        r"^.*parity_two.*$",
    ),
    metric(
        "same labels twice",
        family("parity_same", "COUNTER") + "other = family.Metric(labels={'a': 'x', 'b': 'y'})\n"
        "other.increment(3)\nmetric.increment(1)\nself.kept['same'] = other\nsaid = [metric.value(), other.value()]",
        r"^.*parity_same.*$",
    ),
    metric(
        "collected",
        family("parity_gone", "GAUGE") + "metric.set(1)\ndel self.kept['parity_gone'], metric, family\nsaid = 'gone'",
        r"^.*parity_gone.*$",
    ),
    metric(
        "numbers",
        "".join(
            family(f"parity_number_{number}", "GAUGE") + f"metric.set({value})\n"
            for number, value in enumerate(("1e20", "0.1", "1/3", "float('inf')", "123456789.125"))
        ) + "said = metric.value()",
        r"^.*parity_number_.*$",
    ),
    metric(
        "label with quotes",
        family("parity_quotes", "GAUGE", "{'a': 'x\"y\\\\z'}") + "said = metric.value()",
        r"^.*parity_quotes.*$",
    ),
    Case(
        "metric: one of two models, each its own",
        (
            run("script", family("parity_shared", "COUNTER", "{'by': 'x'}") + "metric.increment(1)\nreturn [text('x')]"),
            run("callee", family("parity_shared", "COUNTER", "{'by': 'y'}") + "metric.increment(2)\nreturn [text('x')]"),
            Metrics(r"^.*parity_shared.*$"),
            run("callee", "self.kept['parity_shared'][1].increment(3)\nreturn [text(self.kept['parity_shared'][1].value())]"),
            Metrics(r"^.*parity_shared.*$"),
        ),
        "3", setup="contract", issue=3,
    ),
    Case(
        "metric: one of two models, the same labels",
        (
            run("script", family("parity_joint", "COUNTER") + "metric.increment(1)\nreturn [text('x')]"),
            run("callee", family("parity_joint", "COUNTER") + "metric.increment(2)\nreturn [text(metric.value())]"),
            Metrics(r"^.*parity_joint.*$"),
            run("callee", "self.kept['parity_joint'].pop()\nreturn [text('x')]"),
            Metrics(r"^.*parity_joint.*$"),
        ),
        "3", setup="contract", issue=3,
    ),
    running("metric: kinds", run("script", "return [text([str(pb_utils.MetricFamily.COUNTER), str(pb_utils.MetricFamily.GAUGE)])]")),
    running("metric: no arguments", run("script", "return [text(str(tried(lambda: pb_utils.MetricFamily()))[:60])]")),
]  # fmt: skip

# -- the log --------------------------------------------------------------------------------------

LINES = "\n".join(
    f"pb_utils.Logger.log_{level}('parity {level}')"
    for level in ("info", "warn", "error", "verbose")
)
SAY = run("script", f"{LINES}\nprint('parity printed', flush=True)\n{ANSWER}")
LINE = r'^([IWE])\d{4} [\d:.]+ \d+ (<string>:\d+)\] ("?parity \w+"?)$'


def log_settings(**settings: Any) -> Quiet:
    return Quiet(post("/v2/logging", settings))


LOGGED = [
    running(
        f"log: {name}",
        log_settings(**settings),
        Logged(SAY, LINE + r"|^(parity printed)$", count),
        log_settings(log_info=True, log_warning=True, log_error=True, log_verbose_level=0),
    )
    for name, count, settings in (
        ("as it is", 4, {}),
        ("no info", 3, {"log_info": False}),
        ("no warnings", 3, {"log_warning": False}),
        ("no errors", 3, {"log_error": False}),
        ("verbose", 5, {"log_verbose_level": 1}),
    )
]
LOGGED.append(
    running(
        "log: ISO8601",
        log_settings(log_format="ISO8601"),
        Logged(SAY, r'^\d{4}-\d\d-\d\dT[\d:]+Z ([IWE]) \d+ (<string>:\d+)\] ("?parity \w+"?)$', 3),
        log_settings(log_format="default"),
    )
)

# -- ensembles ------------------------------------------------------------------------------------


def flow(model: str, code: str, **more: Any) -> Any:
    return infer(model, [given("FIRST", "BYTES", [1], [code])], **more)


def flow_message(model: str, code: str, **more: Any) -> Any:
    return message(model, [("FIRST", "BYTES", [1], [code.encode()])], **more)


def _sooner_or_later(text: str) -> str:
    # Whether the end overtakes the step after the last response is chance, in both.
    return re.sub(
        r'("triton_final_response": \{"bool_param": )(true|false)', r"\1null", _whole(text)
    )


NEXT = "return [text(\"return [text('last')]\")]"
LAST = [{"name": "LAST"}]
ENSEMBLES = [
    running(f"ensemble: {name}", asked, blur=_sooner_or_later if name == "decoupled" else _whole)
    for name, asked in (
        ("answers", flow("chain", NEXT)),
        ("one output", flow("chain", NEXT, outputs=LAST)),
        ("the middle", flow("chain", NEXT, outputs=[{"name": "MIDDLE"}])),
        ("unknown output", flow("chain", NEXT, outputs=[{"name": "mid"}])),
        ("side by side", flow("fork", "return [text('both')]")),
        ("id", flow("chain", NEXT, id="me")),
        ("sequence", flow("chain", NEXT, parameters={"sequence_id": 5, "sequence_start": True})),
        (
            "parameters",
            flow("fork", "return [text(requests[0].parameters())]", parameters={"a": 1}),
        ),
        ("no input", infer("chain", [])),
        ("wrong type", infer("chain", [given("FIRST", "FP32", [1], [1])])),
        ("first step raises", flow("chain", "raise ValueError('no')")),
        ("first step answers an error", flow("chain", "return [fails('no', 'UNAVAILABLE')]")),
        ("last step raises", flow("chain", "return [text(\"raise ValueError('no')\")]")),
        ("step without outputs", flow("chain", "return [pb_utils.InferenceResponse([])]")),
        ("step with another type", flow("chain", "return [pb_utils.InferenceResponse([pb_utils.Tensor('RESULT', np.ones(1, np.float32))])]")),
        ("step with another shape", flow("chain", "return [pb_utils.InferenceResponse([pb_utils.Tensor('RESULT', np.array([b'a', b'b'], dtype=object))])]")),
        ("gRPC", grpc_infer(flow_message("chain", NEXT))),
        ("gRPC, step fails", grpc_infer(flow_message("chain", "return [fails('no', 'NOT_FOUND')]"))),
        ("config", get("/v2/models/chain/config")),
        ("metadata", get("/v2/models/chain")),
        ("unary, decoupled step", flow("many", NEXT)),
        ("decoupled", Stream((flow_message("many", "s = requests[0].get_response_sender()\nfor n in 'abc':\n    s.send(text(f\"return [text('{n}')]\"))\ns.send(flags=FINAL)"),))),
        ("decoupled, nothing", Stream((flow_message("many", "requests[0].get_response_sender().send(flags=FINAL)", parameters={"triton_enable_empty_final_response": ("bool_param", True)}),))),
        ("decoupled, step fails", Stream((flow_message("many", "raise ValueError('no')"),))),
    )
]  # fmt: skip
ENSEMBLES.append(
    running(
        "ensemble: both steps fail",
        flow("fork", "raise ValueError('no')"),
        blur=replacing((r"callee(_pair)?(_0(_[01])?)?\b", "callee_either")),  # the faster one
    )
)
ENSEMBLES.append(
    running(
        "ensemble: order of outputs, JSON parameters",
        flow("chain", NEXT),
        differs="in the config's order, and each parameter once; there in the order of a hash map, "
        "and sequence_id, _start and _end once for each output",
    )
)
CASES = [*CANCELLED, *RESCHEDULED, *METRICS, *LOGGED, *ENSEMBLES]
