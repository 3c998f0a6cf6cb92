"""The pytest plugin: models in the test's own process, and a live runtime, as fixtures.

    [tool.pytest.ini_options]
    model_repository = ["models"]

    @pytest.mark.triton_model("double")
    def test_it_doubles(triton_model):
        assert triton_model.infer({"X": [1.0]})["Y"] == [2.0]

Imported in every run of pytest where devkit is installed, so everything else is imported when a
fixture is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from devkit.testing.live import LiveModel, LiveRuntime
    from devkit.testing.model import ModelUnderTest

_MARKER = "triton_model"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare where models are looked for."""
    group = parser.getgroup("devkit", "models of Triton's Python backend")
    group.addoption(
        "--model-repository",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder of models for the fixtures triton_model and live_model; may be repeated",
    )
    parser.addini("model_repository", "folders of models, relative to this file", type="paths")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(name, **options): the model that triton_model and live_model give; options are "
        "those of devkit.testing.load_model",
    )


def _repositories(config: pytest.Config) -> list[Path]:
    given = [Path(one).absolute() for one in config.getoption("--model-repository")]
    found = given or [Path(one) for one in config.getini("model_repository")]
    for folder in found:
        if not folder.is_dir():
            raise pytest.UsageError(f"the model repository {folder} is not a folder")
    return found


def _folder(config: pytest.Config, name: str) -> Path:
    repositories = _repositories(config)
    for repository in repositories:
        if (repository / name).is_dir():
            return repository / name
    places = ", ".join(map(str, repositories)) or "no model repository"
    raise pytest.UsageError(
        f"no model '{name}' in {places}: set model_repository in pytest's configuration, or give "
        "--model-repository"
    )


def _marked(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    marker = request.node.get_closest_marker(_MARKER)
    if marker is None or len(marker.args) != 1:
        raise pytest.UsageError(
            f"{request.node.nodeid} uses {request.fixturename} and does not say which model: mark "
            f'it with @pytest.mark.{_MARKER}("NAME")'
        )
    return marker.args[0], dict(marker.kwargs)


@pytest.fixture
def load_triton_model(request: pytest.FixtureRequest) -> Iterator[Callable[..., ModelUnderTest]]:
    """`devkit.testing.load_model` for this test: what it loads is finalized when the test ends.

    A name alone is looked for in the model repository.
    """
    from devkit.testing.model import load_model

    loaded: list[ModelUnderTest] = []

    def load(source: Any, config: Any = None, **options: Any) -> ModelUnderTest:
        if isinstance(source, str) and not Path(source).exists():
            source = _folder(request.config, source)
        loaded.append(load_model(source, config, **options))
        return loaded[-1]

    yield load
    problems = []
    for model in reversed(loaded):
        try:
            model.close()
        except Exception as problem:  # a model's finalize; the others are closed nevertheless
            problems.append(problem)
    if problems:
        raise problems[0]


@pytest.fixture
def triton_model(
    request: pytest.FixtureRequest, load_triton_model: Callable[..., ModelUnderTest]
) -> ModelUnderTest:
    """The model that the test's marker names, loaded into this process."""
    name, options = _marked(request)
    source = Path(name) if Path(name).exists() else _folder(request.config, name)
    return load_triton_model(source, **options)


@pytest.fixture(scope="session")
def live_runtime(request: pytest.FixtureRequest) -> Iterator[LiveRuntime]:
    """A real runtime over the model repository: started once, on free ports, ended at the end."""
    from devkit.testing.live import LiveRuntime

    repositories = _repositories(request.config)
    if not repositories:
        raise pytest.UsageError(
            "live_runtime needs models: set model_repository in pytest's configuration, or give "
            "--model-repository"
        )
    with LiveRuntime(repositories) as runtime:
        yield runtime


@pytest.fixture
def live_model(request: pytest.FixtureRequest, live_runtime: LiveRuntime) -> LiveModel:
    """The model that the test's marker names, served by the real runtime."""
    name, _ = _marked(request)
    _folder(request.config, name)
    return live_runtime.model(name)
