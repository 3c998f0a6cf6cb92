"""The two sides of the seam between runtime and browser say the same."""

import importlib.util
from pathlib import Path

EXTENSION = Path(__file__).parents[3] / "extension"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXTENSION / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_messages_in_typescript_are_those_in_python():
    twins = load("twins")
    assert twins.TARGET.read_text(encoding="utf-8") == twins.written(), (
        "run `python extension/twins.py`"
    )


def test_the_bundle_that_is_tested_is_made_of_these_sources():
    assert load("build").fresh(), "run `make extension`"


def test_the_lock_file_names_no_registry():
    assert "://" not in (EXTENSION / "yarn.lock").read_text(encoding="utf-8")
