"""Response senders: decoupled models, default ones that use a sender, streams and generate."""

from __future__ import annotations

import json
from typing import Any

from tests.parity.asking import (
    Case,
    Grpc,
    Http,
    Stream,
    Together,
    addresses,
    post,
    run,
    run_message,
    run_stream,
)

S = "s = requests[0].get_response_sender()\n"
END = "s.send(flags=FINAL)\n"


def decoupled(name: str, *asked: Any, **more: Any) -> Case:
    return Case(f"decoupled: {name}", asked, "7", setup="contract", issue=3, blur=addresses, **more)


def sending(*codes: str, **more: Any) -> Stream:
    return run_stream("script_decoupled", *(S + code for code in codes), **more)


ONE = "s.send(text('one'))\n"
RESPONSES = [
    decoupled(f"{name}{', empty final' if empty else ''}", sending(code, empty_final=empty))
    for empty in (False, True)
    for name, code in (
        ("nothing", END),
        ("one, then the end", ONE + END),
        ("one with the end", "s.send(text('one'), FINAL)"),
        ("by name", "s.send(response=text('one'), flags=FINAL)"),
        ("three", ONE * 3 + END),
        ("an error", "s.send(fails('no', 'NOT_FOUND'))\n" + END),
        ("an error with the end", "s.send(fails('no', 'NOT_FOUND'), FINAL)"),
        ("one, an error, one", ONE + "s.send(fails('no'))\n" + ONE + END),
        ("no outputs", "s.send(pb_utils.InferenceResponse([]), FINAL)"),
        ("raises at once", "raise ValueError('no')"),
        ("raises after one", ONE + "raise ValueError('no')"),
        ("raises after the end", ONE + END + "raise ValueError('no')"),
        ("returns a list", END + "return []"),
        ("returns responses", END + "return [text('more')]"),
        ("returns a number", END + "return 5"),
    )
]
LATER = """\
def later():
    time.sleep(0.1)
    s.send(text('from a thread'))
    s.send(text('the last'), FINAL)
threading.Thread(target=later).start()
"""
TRIED = "self.kept['said'] = WHAT\n" + END
TELL = "s.send(text(self.kept['said']), FINAL)"
MISUSE = (
    "tried(lambda: s.send())",
    "tried(lambda: s.send(None))",
    "tried(lambda: s.send(flags=0))",
    "tried(lambda: s.send(5))",
    "tried(lambda: s.send(text('x'), 7))",
    "tried(lambda: s.send(text('x'), 'final'))",
    "tried(lambda: s.send([text('x')]))",
    "tried(lambda: s.send(text('x'), FINAL, 3))",
    "tried(lambda: type(s)())",
    "[s.send(flags=FINAL), tried(lambda: s.send(text('x')))]",
    "[s.send(flags=FINAL), tried(lambda: s.send(flags=FINAL))]",
    "[s.send(text('x'), FINAL), tried(lambda: s.send(text('x'), FINAL))]",
    "[s.is_cancelled(), requests[0].is_cancelled()]",
    "requests[0].get_response_sender() is s",
    "type(s).__name__",
)
SENDERS = [
    decoupled("from a thread after execute", sending(LATER)),
    decoupled("two at once from threads", sending(LATER, LATER.replace("0.1", "0.25"))),
    decoupled(
        "out of order",
        sending(
            "self.kept['first'] = s",
            "self.kept.pop('first').send(text('first'), FINAL)\n" + ONE + END,
        ),
    ),
    decoupled("model of errors first, then data", sending("s.send(fails('no'))\n" + ONE + END)),
    *(
        decoupled(
            f"sender: {what}",
            sending(
                TRIED.replace("WHAT", what).replace(END, "") + "tried(lambda: s.send(flags=FINAL))",
                TELL,
            ),
        )
        for what in MISUSE
    ),
    decoupled(
        "unknown sender flags",
        sending("self.kept['said'] = tried(lambda: s.send(flags=2))\n" + END, TELL),
    ),
    decoupled(
        "grpc error mode",
        sending("s.send(fails('no', 'NOT_FOUND'))", metadata=(("triton_grpc_error", "true"),)),
    ),
    decoupled(
        "grpc error mode, raised",
        sending("raise ValueError('no')", metadata=(("triton_grpc_error", "true"),)),
    ),
    decoupled("unary over gRPC", Grpc("ModelInfer", run_message("script_decoupled", S + END))),
    decoupled("unary over HTTP", run("script_decoupled", S + END)),
    decoupled(
        "coroutines",
        Together(
            tuple(
                run_stream(
                    "script_decoupled_async",
                    f"{S}for n in range(3):\n    await asyncio.sleep(0.02)\n    s.send(text(f'{name} {{n}}'))\n{END}",
                )
                for name in "ab"
            )
        ),
    ),
    decoupled(
        "a coroutine that raises after its answer",
        run_stream("script_decoupled_async", S + ONE + END + "raise ValueError('late')"),
    ),
    decoupled(
        "a coroutine that raises",
        run_stream("script_decoupled_async", "raise ValueError('never heard')", timeout=1.5),
    ),
    decoupled(
        "a coroutine that returns a list",
        run_stream("script_decoupled_async", S + END + "return [5]"),
    ),
]
DEFAULT = [
    Case(
        f"default mode, sender: {name}", (run("script", S + code),), "3", setup="contract", issue=3
    )
    for name, code in (
        ("answers", "s.send(text('by sender'), FINAL)\nreturn None"),
        ("answers, list of None", "s.send(text('by sender'), FINAL)\nreturn [None]"),
        ("answers, then the end", ONE + END),
        ("from a thread", LATER.replace("    s.send(text('from a thread'))\n", "")),
        ("an error", "s.send(fails('no', 'UNAVAILABLE'), FINAL)"),
        ("the end alone", "said = tried(lambda: s.send(flags=FINAL))\nreturn [text(str(said))]"),
        ("made, not used", "return [text('returned')]"),
        ("is_cancelled", "return [text(str(s.is_cancelled()))]"),
        ("raises", "raise ValueError('no')"),
        ("wrong flags", "said = tried(lambda: s.send(text('x'), 9))\nreturn [text(str(said))]"),
    )
]


def generate(code: str, model: str = "script_decoupled", stream: bool = False, **more: Any) -> Http:
    body = json.dumps({"CODE": code, **more}).encode()
    return post(f"/v2/models/{model}/generate" + "_stream" * stream, body)


TOLD = "text(json.loads(requests[0].parameters()))"
GENERATE = [
    Case(f"generate: {name}", (asked,), "5", setup="contract", issue=3)
    for name, asked in (
        ("one response", generate(S + ONE + END)),
        ("one with the end", generate(S + "s.send(text('one'), FINAL)")),
        ("none", generate(S + END)),
        ("two", generate(S + ONE * 2 + END)),
        ("an error", generate(S + "s.send(fails('no', 'NOT_FOUND'), FINAL)")),
        ("raises", generate("raise ValueError('no')")),
        ("stream of three", generate(S + ONE * 3 + END, stream=True)),
        ("stream of none", generate(S + END, stream=True)),
        (
            "stream, an error first",
            generate(S + "s.send(fails('no', 'NOT_FOUND'), FINAL)", stream=True),
        ),
        ("stream, an error later", generate(S + ONE + "s.send(fails('no'), FINAL)", stream=True)),
        ("stream raises", generate("raise ValueError('no')", stream=True)),
        ("stream raises later", generate(S + ONE + "raise ValueError('no')", stream=True)),
        ("default model", generate("return [text('one')]", "script")),
        ("default model, stream", generate("return [text('one')]", "script", True)),
        ("parameters", generate(f"return [{TOLD}]", "script", a=1, b="x", c=True)),
        (
            "nested parameters",
            generate(f"return [{TOLD}]", "script", parameters={"a": 1, "t": "x"}),
        ),
        ("list as parameter", generate(f"return [{TOLD}]", "script", a=[1])),
        ("null as parameter", generate(f"return [{TOLD}]", "script", a=None)),
        ("number as parameter", generate(f"return [{TOLD}]", "script", a=1.5)),
        ("id", generate("return [text(requests[0].request_id())]", "script", id="me")),
        ("id is a number", generate("return [text(requests[0].request_id())]", "script", id=7)),
        (
            "sequence",
            generate(
                "return [text([requests[0].correlation_id(), requests[0].flags()])]",
                "script",
                sequence_id=5,
                sequence_start=True,
            ),
        ),
        (
            "optional input",
            generate("return [text(len(requests[0].inputs()))]", "script", X=[1.5, 2]),
        ),
        ("input of wrong type", generate("return []", "script", X="text")),
        ("list for one element", post("/v2/models/script/generate", {"CODE": ["return []", "x"]})),
        (
            "list of one element",
            post("/v2/models/script/generate", {"CODE": ["return [text('x')]"]}),
        ),
        ("no input", post("/v2/models/script/generate", {})),
        ("no JSON", post("/v2/models/script/generate", b"{")),
        ("a list", post("/v2/models/script/generate", b"[]")),
        ("empty body", post("/v2/models/script/generate", b"")),
        ("unknown model", post("/v2/models/nobody/generate", {"CODE": "x"})),
        ("unknown model, stream", post("/v2/models/nobody/generate_stream", {"CODE": "x"})),
        ("version", post("/v2/models/script/versions/1/generate", {"CODE": "return [text('x')]"})),
        (
            "two elements answered",
            generate(
                "return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.ones(2, np.float32))])]",
                "script",
            ),
        ),
        ("no outputs answered", generate("return [pb_utils.InferenceResponse([])]", "script")),
    )
]
CASES = [*RESPONSES, *SENDERS, *DEFAULT, *GENERATE]
