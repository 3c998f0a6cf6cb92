"""Models of cells on disk, and the configs drafted for them."""

from dataclasses import replace

import pytest

from devkit.contract import config as contract
from devkit.control.messages import ModelOptions, Tensor
from devkit.control.scratch import Scratch, assumptions
from devkit.errors import ConfigError

CODE = "class TritonPythonModel:\n    pass\n"
X = Tensor("X", "FP32", (2, 3))
Y = Tensor("Y", "FP32", (2, 1))


@pytest.fixture
def scratch(tmp_path):
    return Scratch(tmp_path)


def config_of(scratch, name):
    text = (scratch.root / name / "config.pbtxt").read_text()
    return contract.parse(text)


def test_a_cell_becomes_a_model_folder(scratch, tmp_path):
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    assert (scratch.root / "m" / "1" / "model.py").read_text() == CODE
    assert config_of(scratch, "m").backend == "python"
    assert (tmp_path / ".devkit" / ".gitignore").read_text() == "*\n"


def test_options_become_a_config(scratch):
    options = ModelOptions(
        instances=3,
        max_batch_size=8,
        preferred_batch_size=(4, 8),
        max_queue_delay_microseconds=100,
        decoupled=True,
        parameters={"k": "v"},
    )
    scratch.put("m", {"1/model.py": CODE}, options)
    config = config_of(scratch, "m")
    assert config.max_batch_size == 8
    assert config.instance_group[0].count == 3
    assert list(config.dynamic_batching.preferred_batch_size) == [4, 8]
    assert config.dynamic_batching.max_queue_delay_microseconds == 100
    assert config.model_transaction_policy.decoupled
    assert config.parameters["k"].string_value == "v"


def test_samples_become_inputs_and_outputs(scratch):
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    assert scratch.learn("m", (X,), ()).stale
    draft = scratch.learn("m", (X,), (Y,))
    assert not draft.stale
    config = config_of(scratch, "m")
    assert [one.name for one in config.input] == ["X"]
    assert [one.name for one in config.output] == ["Y"]
    said = assumptions("m", draft)
    assert said[0].startswith("input X: TYPE_FP32, dims [")
    assert said[0].endswith("from a sample of shape [2, 3]")


def test_a_request_that_fails_takes_nothing_away(scratch):
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    scratch.learn("m", (X,), (Y,))
    scratch.learn("m", (replace(X, name="Z"),), ())  # a question: no outputs until it is answered
    assert [one.name for one in config_of(scratch, "m").input] == ["Z"]
    assert not config_of(scratch, "m").output
    assert scratch.learn("m", (), ()).stale
    assert [one.name for one in config_of(scratch, "m").input] == ["X"]
    assert [one.name for one in config_of(scratch, "m").output] == ["Y"]


def test_a_question_nobody_took_back_ends_with_the_next_run_of_the_cell(scratch):
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    scratch.learn("m", (X,), (Y,))
    scratch.learn("m", (X,), ())
    scratch.put("m", {"1/model.py": CODE + "# more\n"}, ModelOptions())
    assert [one.name for one in config_of(scratch, "m").output] == ["Y"]


def test_running_the_cell_again_keeps_what_was_learned_but_marks_it(scratch):
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    scratch.learn("m", (X,), (Y,))
    scratch.put("m", {"1/model.py": CODE + "# more\n"}, ModelOptions(instances=2))
    draft = scratch.draft("m")
    assert draft.stale
    config = config_of(scratch, "m")
    assert [one.name for one in config.input] == ["X"]
    assert config.instance_group[0].count == 2


def test_a_model_that_completes_its_config_itself_gets_none(scratch):
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    scratch.learn("m", (X,), (Y,))
    scratch.put("m", {"1/model.py": "def auto_complete_config(c): return c"}, ModelOptions())
    assert scratch.draft("m").inputs == ()
    assert not config_of(scratch, "m").input


def test_a_given_config_rules_alone(scratch):
    text = 'max_batch_size: 2\ninput [{name: "A" data_type: TYPE_INT8 dims: [1]}]\n'
    scratch.put("m", {"1/model.py": CODE}, ModelOptions(config=text))
    assert (scratch.root / "m" / "config.pbtxt").read_text() == text
    assert scratch.draft("m").given
    assert assumptions("m", scratch.draft("m")) == ()


def test_a_config_alone_leaves_the_code(scratch):
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    scratch.put("m", {}, ModelOptions(config='backend: "python"\n'))
    assert (scratch.root / "m" / "1" / "model.py").read_text() == CODE


def test_a_config_that_cannot_be_read_changes_nothing(scratch):
    with pytest.raises(ConfigError):
        scratch.put("m", {"1/model.py": CODE}, ModelOptions(config="nonsense {"))
    assert not scratch.has("m")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", ""])
def test_files_stay_inside_the_model(scratch, path):
    with pytest.raises(ConfigError, match="not a path inside"):
        scratch.put("m", {path: "x"}, ModelOptions())


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "..", "a\0b"])
def test_names_that_are_no_folder_are_refused(scratch, name):
    with pytest.raises(ConfigError, match="cannot name a model"):
        scratch.put(name, {"1/model.py": CODE}, ModelOptions())


def test_an_unchanged_file_is_not_touched(scratch):
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    path = scratch.root / "m" / "1" / "model.py"
    before = path.stat().st_ino
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    assert path.stat().st_ino == before


def test_a_removed_model_leaves_nothing(scratch):
    scratch.put("m", {"1/model.py": CODE}, ModelOptions())
    scratch.remove("m")
    assert not scratch.has("m")
    assert list(scratch.root.iterdir()) == []


def test_models_of_other_repositories_are_learned_without_writing(scratch):
    draft = scratch.learn("disk", (X,), (Y,))
    assert scratch.draft("disk") == draft
    assert not scratch.has("disk")
