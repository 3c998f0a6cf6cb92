"""Calls from one model to another: all calls, arguments, answers and errors."""

from __future__ import annotations

from tests.parity.asking import Case, addresses, run, run_stream

ECHO = (
    "r = requests[0]\n"
    "return [text([r.request_id(), r.correlation_id(), r.flags(), r.timeout(), "
    "r.parameters(), sorted(r.requested_output_names())])]"
)
SUM = (
    "x = pb_utils.get_input_tensor_by_name(requests[0], 'X').as_numpy()\n"
    "return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', x * 2)])]"
)
MANY = "s = requests[0].get_response_sender()\nfor n in range(3):\n    s.send(text(str(n)))\ns.send(flags=FINAL)"


def bls(name: str, expression: str, **more: str) -> Case:
    """What an expression gives inside `execute`, as JSON."""
    code = f"ECHO = {ECHO!r}\nSUM = {SUM!r}\nMANY = {MANY!r}\nreturn [text({expression})]"
    return Case(
        f"bls: {name}",
        (run("script", code),),
        "3",
        setup="contract",
        issue=3,
        blur=addresses,
        **more,
    )  # type: ignore[arg-type]


def steps(name: str, *lines: str, result: str = "said", **more: str) -> Case:
    """The same for several lines that end with `said`."""
    code = "\n".join((f"ECHO = {ECHO!r}", f"SUM = {SUM!r}", f"MANY = {MANY!r}", *lines))
    return Case(
        f"bls: {name}",
        (run("script", f"{code}\nreturn [text({result})]"),),
        "3",
        setup="contract",
        issue=3,
        blur=addresses,
        **more,
    )  # type: ignore[arg-type]


PLAIN = [
    bls("an answer", "show(ask('callee').exec())"),
    bls("unknown model", "show(ask('nobody').exec())"),
    bls("unknown version", "show(ask('callee', model_version=9).exec())"),
    bls("version", "show(ask('callee', model_version=1).exec())"),
    bls("version -1", "show(ask('callee', model_version=-1).exec())"),
    bls("no arguments", "show(ask('callee', ECHO).exec())"),
    bls("request_id", "show(ask('callee', ECHO, request_id='me').exec())"),
    bls("correlation_id", "show(ask('callee', ECHO, correlation_id=7).exec())"),
    bls("correlation_id, text", "show(ask('callee', ECHO, correlation_id='seven').exec())"),
    bls("flags", "show(ask('callee', ECHO, flags=3).exec())"),
    bls("timeout", "show(ask('callee', ECHO, timeout=5000000).exec())"),
    bls("parameters", "show(ask('callee', ECHO, parameters={'a': 1, 'b': 'x', 'c': True}).exec())"),
    bls("no parameters", "show(ask('callee', ECHO, parameters={}).exec())"),
    bls("trace", "show(ask('callee', ECHO, trace=requests[0].trace()).exec())"),
    bls("trace context", "str(requests[0].trace().get_context())"),
    bls(
        "preferred_memory",
        "show(ask('callee', preferred_memory=pb_utils.PreferredMemory("
        "pb_utils.TRITONSERVER_MEMORY_CPU, 0)).exec())",
    ),
    bls(
        "numbers",
        "show(ask('callee', outputs=['Y'], inputs=[code_tensor(SUM), x_tensor(1, 2)]).exec())",
    ),
    bls("no such output", "show(ask('callee', outputs=['N']).exec())"),
    bls("no outputs asked for", "show(ask('callee', outputs=[]).exec())"),
    bls("output that is not answered", "show(ask('callee', outputs=['RESULT', 'Y']).exec())"),
    bls("no inputs", "show(ask('callee', inputs=[]).exec())"),
    bls(
        "input too many",
        "show(ask('callee', inputs=[code_tensor(SUM), pb_utils.Tensor('Z', np.zeros(1))]).exec())",
    ),
    bls("input twice", "show(ask('callee', inputs=[code_tensor(SUM), code_tensor(SUM)]).exec())"),
    bls(
        "input of another type",
        "show(ask('callee', inputs=[pb_utils.Tensor('CODE', np.zeros(1))]).exec())",
    ),
    bls(
        "input of another shape",
        "show(ask('callee', inputs=[pb_utils.Tensor('CODE', np.array([[b'x']], dtype=object))]).exec())",
    ),
    bls("callee raises", "show(ask('callee', \"raise ValueError('no')\").exec())"),
    bls(
        "callee answers an error",
        "show(ask('callee', \"return [fails('no', 'NOT_FOUND')]\").exec())",
    ),
    bls(
        "callee answers no output",
        "show(ask('callee', 'return [pb_utils.InferenceResponse([])]').exec())",
    ),
    bls("callee answers too few", "show(ask('callee', 'return []').exec())"),
    bls(
        "a string as list of outputs", "tried(lambda: show(ask('callee', outputs='RESULT').exec()))"
    ),
    bls("wrong argument", "tried(lambda: ask('callee').exec('yes'))"),
    bls("wrong name", "tried(lambda: ask('callee').exec(coupled=True))"),
    bls("negative timeout", "tried(lambda: ask('callee', timeout=-1))[:60]"),
    bls("correlation id is a float", "tried(lambda: ask('callee', correlation_id=1.5))"),
    bls("parameters are a list", "tried(lambda: ask('callee', parameters=[1]))"),
    bls("parameter of other type", "tried(lambda: ask('callee', parameters={'a': [1]}))"),
    bls("parameter name no text", "tried(lambda: ask('callee', parameters={1: 1}))"),
    bls("async_exec without a loop", "str(tried(lambda: ask('callee').async_exec()))[:60]"),
    steps(
        "one request twice",
        "r = ask('callee', ECHO, request_id='same')",
        "said = [show(r.exec()), show(r.exec())]",
    ),
    steps(
        "set_flags",
        "r = ask('callee', ECHO)",
        "r.set_flags(2)",
        "said = [r.flags(), show(r.exec())]",
    ),
    steps(
        "what a request says of itself",
        "r = ask('callee', request_id='i', correlation_id=3, flags=1, timeout=9, parameters={'a': 1})",
        "said = [r.request_id(), r.correlation_id(), r.flags(), r.timeout(), r.parameters(),"
        " [t.name() for t in r.inputs()], sorted(r.requested_output_names())]",
    ),
    steps(
        "large tensors",
        "x = np.arange(300_000, dtype=np.float32)",
        "r = ask('callee', outputs=['Y'], inputs=[code_tensor(SUM), pb_utils.Tensor('X', x)]).exec()",
        "y = pb_utils.get_output_tensor_by_name(r, 'Y').as_numpy()",
        "said = [y.shape, float(y[-1]), bool((y == 2 * x).all()), y.flags.writeable]",
    ),
    steps(
        "an answer passed on",
        "x = np.arange(100_000, dtype=np.float32)",
        "r = ask('callee', outputs=['Y'], inputs=[code_tensor(SUM), pb_utils.Tensor('X', x)]).exec()",
        "y = pb_utils.Tensor('X', r.output_tensors()[0].as_numpy())",
        "r = ask('callee', outputs=['Y'], inputs=[code_tensor(SUM), y]).exec()",
        "said = float(r.output_tensors()[0].as_numpy()[-1])",
    ),
    steps("calls in a row", "said = [show(ask('callee').exec()) for _ in range(20)]"),
    steps(
        "from threads",
        "said = []",
        "def call():\n    said.append(show(ask('callee_pair').exec()))",
        "threads = [threading.Thread(target=call) for _ in range(4)]",
        "[t.start() for t in threads]\n[t.join() for t in threads]",
    ),
    steps(
        "gathered",
        "async def main():\n    return await asyncio.gather(*(ask('callee_pair').async_exec() for _ in range(4)))",
        "said = [show(r) for r in asyncio.run(main())]",
    ),
    steps(
        "is_model_ready",
        "ready = pb_utils.is_model_ready",
        "said = [ready('callee'), ready('callee', '1'), ready('callee', '9'), ready('nobody'),"
        " ready(model_name='callee', model_version='1'), ready('chain')]",
    ),
    bls("is_model_ready of wrong type", "tried(lambda: pb_utils.is_model_ready(5))"),
    bls("load_model of wrong type", "tried(lambda: pb_utils.load_model(5))"),
    bls(
        "load_model, files no dict",
        "tried(lambda: pb_utils.load_model('guest', config='{}', files=[1]))",
    ),
    bls("unload_model of wrong type", "tried(lambda: pb_utils.unload_model(5))"),
]
STREAMED = [
    bls(
        "decoupled callee", "[show(r) for r in ask('callee_decoupled', MANY).exec(decoupled=True)]"
    ),
    bls("decoupled=True, default callee", "[show(r) for r in ask('callee').exec(decoupled=True)]"),
    bls("decoupled=True, unknown", "[show(r) for r in ask('nobody').exec(decoupled=True)]"),
    bls(
        "decoupled callee raises",
        "[show(r) for r in ask('callee_decoupled', 'raise ValueError()').exec(decoupled=True)]",
    ),
    bls(
        "decoupled callee, nothing",
        "[show(r) for r in ask('callee_decoupled', 'requests[0].get_response_sender().send(flags=FINAL)').exec(decoupled=True)]",
    ),
    bls(
        "decoupled callee, end with the last",
        "[show(r) for r in ask('callee_decoupled', \"requests[0].get_response_sender().send(text('x'), FINAL)\").exec(decoupled=True)]",
    ),
    bls(
        "decoupled callee, error",
        "[show(r) for r in ask('callee_decoupled', \"requests[0].get_response_sender().send(fails('no', 'NOT_FOUND'), FINAL)\").exec(decoupled=True)]",
    ),
    bls(
        "decoupled callee, error before the end",
        "[show(r) for r in ask('callee_decoupled', \"s = requests[0].get_response_sender()\\n"
        "s.send(text('x'))\\ns.send(fails('no', 'NOT_FOUND'))\\ns.send(flags=FINAL)\").exec(decoupled=True)]",
        differs="an error that a decoupled model sends to a caller is lost in 2.51",
    ),
    steps(
        "iterated twice",
        "found = ask('callee_decoupled', MANY).exec(decoupled=True)",
        "said = [[show(r) for r in found], [show(r) for r in found]]",
    ),
    steps(
        "next after the end",
        "found = ask('callee').exec(decoupled=True)",
        "said = [show(next(found)), tried(lambda: next(found))]",
    ),
    steps(
        "not iterated at all",
        "for _ in range(3):\n    ask('callee_decoupled', MANY).exec(decoupled=True)",
        "said = show(ask('callee').exec())",
    ),
    steps(
        "iterated a little",
        "found = ask('callee_decoupled', MANY).exec(decoupled=True)",
        "said = [show(next(found)), type(found).__name__]",
        "del found",
    ),
    steps(
        "gathered, decoupled",
        "async def main():\n    return await asyncio.gather(*(ask('callee_decoupled', MANY).async_exec(decoupled=True) for _ in range(3)))",
        "said = [[show(r) for r in found] for found in asyncio.run(main())]",
    ),
]
SENT = "s = requests[0].get_response_sender()\n"
FROM_DECOUPLED = [
    Case(
        f"bls: {name}",
        (run_stream("script_decoupled", SENT + code),),
        "3",
        setup="contract",
        issue=3,
    )
    for name, code in (
        (
            "in a thread after execute",
            "def later():\n    time.sleep(0.05)\n    s.send(text(show(ask('callee').exec())), FINAL)\n"
            "threading.Thread(target=later).start()",
        ),
        (
            "answers handed on",
            f"for r in ask('callee_decoupled', {MANY!r}).exec(decoupled=True):\n"
            "    if r.output_tensors():\n        s.send(r)\ns.send(flags=FINAL)",
        ),
    )
]
STATEFUL = [
    bls("stateful: no id", "show(ask('stateful').exec())"),
    bls("stateful: not started", "show(ask('stateful', correlation_id=5).exec())"),
    steps(
        "stateful: a sequence",
        "said = [show(ask('stateful', ECHO, correlation_id=6, flags=f).exec()) for f in (START, 0, END)]",
        "said.append(show(ask('stateful', ECHO, correlation_id=6).exec()))",
    ),
    steps(
        "stateful: ids as text",
        "said = [show(ask('stateful', ECHO, correlation_id='six', flags=f).exec()) for f in (START, END)]",
    ),
    steps(
        "stateful: at once",
        "said = show(ask('stateful', ECHO, correlation_id=8, flags=START | END).exec())",
    ),
]
FIRST = "pb_utils.Tensor('FIRST', np.array([CODE.encode()], dtype=object))"
ENSEMBLES = [
    bls(
        f"{model}: {name}",
        f"show(ask({model!r}, outputs=['LAST'], inputs=[{FIRST.replace('CODE', repr(code))}]).exec())",
    )
    for model, name, code in (
        ("chain", "answers", "return [text(\"return [text('last')]\")]"),
        ("chain", "first step fails", "return [fails('no', 'UNAVAILABLE')]"),
        ("chain", "last step fails", "return [text(\"raise ValueError('no')\")]"),
        ("fork", "answers", "return [text('both')]"),
        ("many", "without decoupled", "return [text('both')]"),
    )
] + [
    bls(
        "many: answers",
        "[show(r) for r in ask('many', outputs=['LAST'], inputs=["
        + FIRST.replace(
            "CODE",
            repr(
                "s = requests[0].get_response_sender()\nfor n in 'ab':\n"
                "    s.send(text(f\"return [text('{n}')]\"))\ns.send(flags=FINAL)"
            ),
        )
        # Whether the end comes alone or with the last response is chance on the real server.
        + "]).exec(decoupled=True) if r.has_error() or r.output_tensors()]",
    )
]
OVERRIDE = (
    '{"backend": "python", "max_batch_size": 0, '
    '"input": [{"name": "CODE", "data_type": "TYPE_STRING", "dims": [1]}], '
    '"output": [{"name": "RESULT", "data_type": "TYPE_STRING", "dims": [1]}], '
    '"parameters": {"set": {"string_value": "by override"}}}'
)
REPLACED = (
    "import numpy as np\\nimport triton_python_backend_utils as pb_utils\\n"
    "class TritonPythonModel:\\n    def execute(self, requests):\\n"
    "        t = pb_utils.Tensor('RESULT', np.array([b'replaced'], dtype=object))\\n"
    "        return [pb_utils.InferenceResponse([t])]\\n"
)
SAYS_CONFIG = "return [text(json.loads(self.args['model_config'])['parameters'])]"
CONTROL = [
    steps("load_model", "pb_utils.load_model('guest')", "said = show(ask('guest').exec())"),
    steps(
        "load_model with a config",
        f"pb_utils.load_model('guest', config={OVERRIDE!r})",
        f"said = show(ask('guest', {SAYS_CONFIG!r}).exec())",
    ),
    steps(
        "load_model with files",
        "pb_utils.unload_model('guest')\ntime.sleep(0.5)",
        f"pb_utils.load_model('guest', config={OVERRIDE!r}, files={{'file:1/model.py': b\"{REPLACED}\"}})",
        "said = show(ask('guest').exec())",
    ),
    steps(
        "unload_model",
        "pb_utils.load_model('guest')\npb_utils.unload_model('guest')\ntime.sleep(0.5)",
        "said = [pb_utils.is_model_ready('guest'), show(ask('guest').exec())]",
    ),
    steps("unload_model of nobody", "said = str(pb_utils.unload_model('nobody'))"),
]
CASES = [*PLAIN, *STREAMED, *FROM_DECOUPLED, *STATEFUL, *ENSEMBLES, *CONTROL]
