"""The log: Triton's format, the settings, and the lines that are kept."""

import io
import logging
import re
import sys

import pytest

from devkit.core.taps import LogEvent
from devkit.observe.logs import Log, LogSettings, Writer


@pytest.fixture
def kept():
    log = Log(LogSettings(), io.StringIO(), io.StringIO())
    log.install()
    yield log
    log.close()


@pytest.fixture
def logger():
    return logging.getLogger("devkit.test")


def written(log):
    assert log._writer.flush(5)
    return log.stderr.getvalue()


def test_a_line_is_in_tritons_format(kept, logger):
    logger.info("loading: %s", "add")
    assert re.fullmatch(
        r'I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ test_logs\.py:\d+\] "loading: add"\n', written(kept)
    )


def test_letters_tell_the_level(kept, logger):
    logger.warning("w")
    logger.error("e")
    assert [line[0] for line in written(kept).splitlines()] == ["W", "E"]


def test_iso8601(kept, logger):
    kept.settings.log_format = "ISO8601"
    logger.info("x")
    assert re.match(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ I \d+ test_logs\.py:\d+\] "x"', written(kept))


def test_a_message_cannot_forge_a_line(kept, logger):
    logger.info('one\ntwo "q" \\ é')
    assert written(kept).count("\n") == 1
    assert written(kept).endswith('] "one\\ntwo \\"q\\" \\\\ é"\n')


def test_a_table_stands_below_its_line(kept, logger):
    logger.info("", extra={"table": "+--+\n|  |"})
    head, *rest = written(kept).splitlines()
    assert head.endswith("] ")
    assert rest == ["+--+", "|  |"]


def test_a_traceback_follows_its_line(kept, logger):
    try:
        raise ValueError("boom")
    except ValueError:
        logger.exception("failed")
    assert "ValueError: boom" in written(kept)


@pytest.mark.parametrize(
    ("setting", "level"), [("log_info", "info"), ("log_warning", "warning"), ("log_error", "error")]
)
def test_a_level_can_be_turned_off_while_it_runs(kept, logger, setting, level):
    setattr(kept.settings, setting, False)
    getattr(logger, level)("x")
    assert written(kept) == ""
    setattr(kept.settings, setting, True)
    getattr(logger, level)("x")
    assert written(kept) != ""


def test_verbose_lines_need_a_verbose_level(kept, logger):
    logger.debug("one")
    logger.log(logging.DEBUG - 1, "two")
    assert written(kept) == ""
    kept.settings.log_verbose_level = 1
    logger.debug("one")
    logger.log(logging.DEBUG - 1, "two")
    assert written(kept).count("\n") == 1
    kept.settings.log_verbose_level = 2
    logger.log(logging.DEBUG - 1, "two")
    assert written(kept).count("\n") == 2


def event(stream, text, instance="m_0"):
    return LogEvent("m", "1", instance, 42, stream, text, "/repo/m/1/model.py", 11)


def test_what_a_model_prints_is_passed_on_as_it_is(kept):
    kept.on_model_line(event("stdout", "hello\tworld"))
    kept.on_model_line(event("stderr", "oops"))
    assert written(kept) == "oops\n"
    assert kept.stdout.getvalue() == "hello\tworld\n"


def test_a_models_logger_line_names_its_own_place(kept):
    kept.on_model_line(event("WARNING", "careful"))
    assert re.match(r'W\d{4} .* \d+ model\.py:11\] "careful"\n', written(kept))


def test_a_hidden_level_of_a_model_is_hidden(kept):
    kept.on_model_line(event("VERBOSE", "x"))
    assert written(kept) == ""
    assert kept.lines() == []


def test_lines_are_kept_by_instance_and_model(kept, logger):
    kept.on_model_line(event("stdout", "a", "m_0"))
    kept.on_model_line(event("stdout", "b", "m_1"))
    logger.info("c")
    assert [one.text for one in kept.lines()] == ["a", "b", "c"]
    assert [one.text for one in kept.lines(instance="m_1")] == ["b"]
    assert [one.text for one in kept.lines(model="m")] == ["a", "b"]
    assert [one.text for one in kept.lines(after=kept.lines()[0].sequence)] == ["b", "c"]
    assert [one.text for one in kept.lines(count=1)] == ["c"]


def test_a_chatty_model_does_not_push_out_a_quiet_one(kept):
    kept.on_model_line(event("stdout", "quiet", "q_0"))
    for number in range(3000):
        kept.on_model_line(event("stdout", str(number)))
    assert [one.text for one in kept.lines(instance="q_0")] == ["quiet"]


def test_listeners_hear_every_kept_line(kept, logger):
    heard = []
    kept.listeners.append(heard.append)
    logger.info("x")
    assert [one.text for one in heard] == ["x"]


def test_a_log_file_takes_the_lines(tmp_path, logger):
    log = Log(LogSettings(log_file=str(tmp_path / "log")), io.StringIO(), io.StringIO())
    log.install()
    logger.info("x")
    log.close()
    assert (tmp_path / "log").read_text().endswith('"x"\n')
    assert log.stderr.getvalue() == ""


class Stuck(io.StringIO):
    """A pipe nobody reads."""

    def __init__(self, gate):
        super().__init__()
        self.gate = gate

    def write(self, text):
        self.gate.wait(10)
        return super().write(text)


def test_a_reader_that_is_stuck_costs_lines_and_not_the_caller():
    import threading

    gate = threading.Event()
    stuck = Stuck(gate)
    writer = Writer(bound=5)
    for number in range(50):
        writer.write(stuck, str(number))
    gate.set()
    assert writer.flush(10)
    writer.close()
    assert "lines were dropped" in stuck.getvalue()
    assert stuck.getvalue().endswith("49\n")


def test_a_stream_that_is_closed_is_no_error():
    gone = io.StringIO()
    gone.close()
    writer = Writer()
    writer.write(gone, "x")
    writer.write(sys.stderr, "")
    assert writer.flush(5)
    writer.close()
