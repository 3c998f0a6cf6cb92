"""A tritonserver command line, read."""

import pytest

from devkit.contract import flags
from devkit.contract.flags import UsageError, parse


def test_every_spelling_of_a_flag_means_the_same():
    for words in (
        ["--http-port=9000"],
        ["--http-port", "9000"],
        ["-http-port", "9000"],
        ["--http_port=9000"],
    ):
        assert parse(words).values["http_port"] == 9000


def test_repositories_come_from_everywhere_in_order():
    line = parse(["a", "--model-repository=b", "--model-store", "c", "d"])
    assert line.repositories == ["a", "b", "c", "d"]


def test_words_after_two_dashes_are_repositories():
    assert parse(["--", "--odd"]).repositories == ["--odd"]


@pytest.mark.parametrize("text", ["false", "False", "0", "off", "no"])
def test_a_boolean_can_be_turned_off(text):
    assert parse([f"--allow-http={text}"]).values["allow_http"] is False
    assert parse(["--allow-http", text]).values["allow_http"] is False


def test_a_bare_boolean_is_true_and_takes_no_repository_with_it():
    line = parse(["--exit-on-error", "models"])
    assert line.values["exit_on_error"] is True
    assert line.repositories == ["models"]


def test_a_switch_takes_no_value():
    line = parse(["--disable-auto-complete-config", "true"])
    assert line.values["disable_auto_complete_config"] is True
    assert line.repositories == ["true"]


def test_backend_and_trace_settings_by_scope():
    line = parse(
        [
            "--backend-config=python,shm-default-byte-size=8388608",
            "--backend-config=default-max-batch-size=4",
            "--trace-config=triton,file=/tmp/t.json",
            "--trace-config=level=TIMESTAMPS",
        ]
    )
    assert line.backend == {
        "python": {"shm-default-byte-size": "8388608"},
        "": {"default-max-batch-size": "4"},
    }
    assert line.trace == {"triton": {"file": "/tmp/t.json"}, "": {"level": "TIMESTAMPS"}}


def test_port_zero_is_for_all_three():
    values = parse(["--port", "0"]).values
    assert (values["http_port"], values["grpc_port"], values["metrics_port"]) == (0, 0, 0)


def test_a_first_port_gives_three_and_a_named_one_wins():
    values = parse(["--port=9100", "--grpc-port=7"]).values
    assert (values["http_port"], values["grpc_port"], values["metrics_port"]) == (9100, 7, 9102)


def test_everything_stays_on_loopback_unless_told_otherwise():
    values = parse([]).values
    assert {values[f"{name}_address"] for name in ("http", "grpc", "metrics")} == {"127.0.0.1"}
    assert parse(["--http-address=0.0.0.0"]).values["metrics_address"] == "0.0.0.0"
    assert parse(["--address=::"]).values["grpc_address"] == "::"


def test_an_unknown_flag_is_refused_with_what_was_meant():
    with pytest.raises(UsageError, match="unrecognized option '--log-infos'") as caught:
        parse(["--log-infos=1"])
    assert caught.value.remedy == "did you mean --log-info?"


def test_a_flag_like_nothing_points_to_the_help():
    with pytest.raises(UsageError) as caught:
        parse(["--zzzzqqq"])
    assert "--help" in caught.value.remedy


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--http-port=abc"], "'abc' is not a number"),
        (["--http-port"], "requires a value"),
        (["--http-port=70000"], "70000 is not a port"),
        (["--allow-http=maybe"], "neither true nor false"),
        (["--model-control-mode=explicitt"], "not one of none, poll, explicit"),
        (["--load-model=a"], "needs --model-control-mode=explicit"),
        (["--model-control-mode=explicit", "--load-model=*", "--load-model=a"], "the only"),
        (["--backend-config=python"], "not of the form"),
        (["--allow-sagemaker=true"], "not supported"),
        (["--allow-vertex-ai"], "not supported"),
    ],
)
def test_what_cannot_be_taken_is_refused_in_words(words, says):
    with pytest.raises(UsageError, match=says.replace("*", r"\*")):
        parse(words)


def test_a_refused_feature_that_is_turned_off_is_no_matter():
    parse(["--grpc-use-ssl=false", "--allow-sagemaker", "false"])


def test_a_flag_without_effect_is_noted():
    line = parse(["--pinned-memory-pool-byte-size=1", "--http-thread-count=4"])
    assert len(line.notes) == 2
    assert "--pinned-memory-pool-byte-size has no effect" in line.notes[0]


def test_the_help_names_every_flag_that_is_used():
    text = flags.help_text()
    assert all(f"--{flag.name}" in text for flag in flags.FLAGS if flag.use == "used")


def test_names_are_unique():
    assert len(flags.BY_NAME) == len(flags.FLAGS)
