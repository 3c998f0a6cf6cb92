"""One runtime for the tests of the control API that leave it as they found it."""

import pytest

from tests.support.live import DOUBLE, live


@pytest.fixture(scope="module")
def runtime():
    with live("--allow-grpc=false", models={"double": DOUBLE}) as one:
        yield one


@pytest.fixture(scope="module")
def client(runtime):
    return runtime.client()
