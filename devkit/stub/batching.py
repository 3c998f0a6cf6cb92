"""What a model that runs whole batches does with requests: join them, run once, share out.

For Python-based backends; a plain model does as it likes.
"""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from devkit.stub import pb_utils

Arrays = Dict[str, Any]


def run(
    requests: Sequence[Any], batched: bool, outputs: Sequence[str], work: Callable[[Arrays], Arrays]
) -> List[Any]:
    """One response for each request; those with inputs alike run together.

    `batched` says whether the first dimension counts rows. `work` gets arrays by input name and
    returns arrays by output name; what it raises is the answer of the requests it ran for.
    """
    answers: Dict[int, Any] = {}
    for rows, given in _groups(requests, batched):
        try:
            found = work(given)
        except Exception as problem:
            for number, _ in rows:
                answers[number] = _failed(problem)
            continue
        start = 0
        for number, size in rows:
            part = found if len(rows) == 1 else _cut(found, start, size)
            start += size
            wanted = requests[number].requested_output_names()
            answers[number] = pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor(name, np.ascontiguousarray(part[name]))
                    for name in outputs
                    if name in wanted and name in part
                ]
            )
    return [answers[number] for number in range(len(requests))]


def _failed(problem: Exception) -> Any:
    text = f"{type(problem).__name__}: {problem}"
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text))


def _groups(requests: Sequence[Any], batched: bool) -> List[Tuple[List[Tuple[int, int]], Arrays]]:
    """(number, rows) of the requests that run together, with their joined inputs."""
    table: Dict[Any, List[Tuple[int, Arrays]]] = {}
    for number, request in enumerate(requests):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        shapes = tuple(
            (name, given[name].shape[1:], given[name].dtype.str) for name in sorted(given)
        )
        table.setdefault(shapes if batched else number, []).append((number, given))
    found = []
    for members in table.values():
        if len(members) == 1:
            number, given = members[0]
            found.append(([(number, 1)], given))
            continue
        rows = [(number, len(next(iter(given.values())))) for number, given in members]
        names = members[0][1]
        joined = {name: np.concatenate([given[name] for _, given in members]) for name in names}
        found.append((rows, joined))
    return found


def _cut(found: Arrays, start: int, size: int) -> Arrays:
    return {name: array[start : start + size] for name, array in found.items()}
