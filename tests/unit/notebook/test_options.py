import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from devkit.notebook.options import UsageError, parse


def test_a_bare_name_asks_for_nothing():
    options = parse("add_sub")
    assert options.name == "add_sub"
    assert not options.changes_config()


def test_every_option_reaches_the_config():
    options = parse(
        "m --instances 3 --max-batch-size 8 --max-queue-delay 500 --preferred-batch-size 4,8 "
        "--decoupled --start-method spawn --parameter path=/data --parameter 'words=two words'"
    )
    config = ModelConfig()
    options.apply(config)
    assert config.instance_group[0].count == 3
    assert config.max_batch_size == 8
    assert config.dynamic_batching.max_queue_delay_microseconds == 500
    assert list(config.dynamic_batching.preferred_batch_size) == [4, 8]
    assert config.model_transaction_policy.decoupled
    assert {key: value.string_value for key, value in config.parameters.items()} == {
        "DEVKIT_START_METHOD": "spawn",
        "path": "/data",
        "words": "two words",
    }
    message = options.message()
    assert message.instances == 3
    assert message.parameters["DEVKIT_START_METHOD"] == "spawn"


def test_what_the_line_leaves_out_keeps_the_configs_value():
    config = ModelConfig(max_batch_size=4)
    config.instance_group.add(kind="KIND_CPU", count=2)
    parse("m --dynamic-batching").apply(config)
    assert config.max_batch_size == 4
    assert config.instance_group[0].count == 2
    assert config.HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "name"),
        ("a/b", "cannot name a model"),
        ("../up", "cannot name a model"),
        ("m --instances 0", "not a positive number"),
        ("m --instances x", "invalid"),
        ("m --instance 2", "unrecognized"),
        ("m --start-method slow", "invalid choice"),
        ("m --parameter nothing", "KEY=VALUE"),
        ("m --max-batch-size 0 --dynamic-batching", "batch dimension"),
        ("m 'open", "quotation"),
        ("m two", "unrecognized"),
    ],
)
def test_a_line_that_makes_no_sense_says_so(line, words):
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert words in caught.value.message
    assert caught.value.remedy
