"""The mode matrix: every way of running a model with every way of calling another."""

from __future__ import annotations

from devkit.contract import modes
from tests.parity.asking import Case, Together, run_stream
from tests.support.scripts import CALLS

ANSWERS = {
    "default": "return [text('heard')]",
    "decoupled": "s = requests[0].get_response_sender()\n"
    "s.send(text('one'))\ns.send(text('two'))\ns.send(flags=FINAL)",
}
CALLEES = {"default": "callee", "decoupled": "callee_decoupled"}


def model_of(mode: str, execute: str) -> str:
    return "script" + "_decoupled" * (mode == "decoupled") + "_async" * (execute == "async")


def answering(mode: str, value: str) -> str:
    if mode == "default":
        return f"return [text({value})]"
    return f"requests[0].get_response_sender().send(text({value}), FINAL)"


def body(mode: str, execute: str, call: str, callee: str) -> str:
    """The body of `execute` for one combination."""
    if callee == "itself":
        model, answer = model_of(mode, execute), answering(mode, "'heard'")
    elif callee:
        model, answer = CALLEES[callee], ANSWERS[callee]
    else:
        model = answer = ""
    code = CALLS[call].replace("MODEL", repr(model)).replace("ANSWER", repr(answer))
    if execute == "sync" and "await" in code:
        # The loop that a plain execute has to bring itself.
        code = f"async def call():\n    {code}\n    return shown\nshown = asyncio.run(call())"
    return f"{code}\n{answering(mode, 'shown')}"


def says(row: modes.Row, callee: str) -> str:
    if row.outcome == "refused":
        return "is using the decoupled. The current BLS request call"
    return {"decoupled": "two", "": "nothing"}.get(callee, "heard")


def combination(mode: str, execute: str, call: str, callee: str) -> Case:
    name = f"mode: {mode}, {execute}, {call} of {callee}" if callee else f"mode: {mode}, {execute}"
    return Case(
        name,
        (run_stream(model_of(mode, execute), body(mode, execute, call, callee)),),
        "3",
        status="OK",
        says=says(modes.find(mode, execute, call, callee), callee),
        setup="contract",
        issue=3,
    )


# What hangs would take the instance from the cases after it, on the real server for good.
MATRIX = [
    combination(*each) for each in modes.combinations() if modes.find(*each).outcome != "hangs"
]

MEANWHILE = {"sync": "time.sleep(0.3)", "async": "await asyncio.sleep(0.3)"}


def most(mode: str, execute: str) -> str:
    return (
        "self.now += 1\nself.most = max(self.most, self.now)\n"
        f"{MEANWHILE[execute]}\nself.now -= 1\n{answering(mode, 'str(self.most)')}"
    )


TOGETHER = [
    Case(
        f"mode: {mode}, {execute}: two at once",
        (Together((run_stream(model_of(mode, execute), most(mode, execute)),) * 2),),
        "3",
        setup="contract",
        issue=3,
    )
    for mode in modes.MODES
    for execute in modes.EXECUTES
]
CASES = [*MATRIX, *TOGETHER]
