"""Finding the runtime of a folder."""

import dataclasses
import os
import socket
import stat

import pytest

from devkit.control import discovery
from devkit.control.messages import Runtime
from devkit.errors import ControlError


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("DEVKIT_WORKSPACE", raising=False)
    monkeypatch.setenv("DEVKIT_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture
def serving(tmp_path):
    """Publish a runtime whose control socket somebody listens at."""
    sockets = []

    def make(workspace, started=1.0, pid=None):
        workspace.mkdir(parents=True, exist_ok=True)
        pid = pid or os.getpid()
        path = discovery.socket_path(workspace, "control", pid)
        sockets.append(discovery.bind(path))
        runtime = Runtime(pid, str(workspace), started, str(path), str(path) + "-local")
        discovery.publish(runtime)
        return runtime

    yield make
    for one in sockets:
        one.close()


def test_a_published_runtime_is_found_from_below(tmp_path, serving, monkeypatch):
    runtime = serving(tmp_path / "w")
    inside = tmp_path / "w" / "notebooks" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert discovery.find() == runtime


def test_a_named_workspace_is_taken_exactly(tmp_path, serving):
    runtime = serving(tmp_path / "w")
    assert discovery.find(tmp_path / "w") == runtime
    assert discovery.find(tmp_path / "w" / "notebooks") is None


def test_the_nearest_workspace_wins(tmp_path, serving, monkeypatch):
    serving(tmp_path / "w")
    inner = serving(tmp_path / "w" / "inner", pid=os.getppid())
    monkeypatch.chdir(tmp_path / "w" / "inner")
    assert discovery.find() == inner


def test_of_two_runtimes_of_one_workspace_the_newer_is_found(tmp_path, serving):
    serving(tmp_path / "w", started=1.0)
    newer = serving(tmp_path / "w", started=2.0, pid=os.getppid())
    assert discovery.find(tmp_path / "w") == newer


def test_a_stale_file_is_removed_with_its_sockets(tmp_path, own_folder):
    workspace = tmp_path / "w"
    workspace.mkdir()
    path = discovery.socket_path(workspace, "control", 4_000_000)
    discovery.bind(path).close()  # the file stays, nobody listens
    discovery.publish(Runtime(4_000_000, str(workspace), 1.0, str(path), str(path) + "-local"))
    assert discovery.find(workspace) is None
    assert [one.name for one in own_folder.iterdir()] == []


def test_a_file_that_is_no_runtime_is_removed(own_folder):
    discovery.runtime_dir()
    (own_folder / "0123.json").write_text("{")
    assert discovery.running() == []
    assert not (own_folder / "0123.json").exists()


def test_withdrawing_leaves_nothing(tmp_path, serving, own_folder):
    discovery.withdraw(serving(tmp_path / "w"))
    assert list(own_folder.iterdir()) == []


def test_only_the_user_can_enter(tmp_path, serving, own_folder):
    runtime = serving(tmp_path / "w")
    assert stat.S_IMODE(own_folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(os.stat(runtime.control).st_mode) == 0o600
    (file,) = own_folder.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_open_folder_is_closed(own_folder):
    own_folder.mkdir(mode=0o777)
    own_folder.chmod(0o777)
    discovery.runtime_dir()
    assert stat.S_IMODE(own_folder.stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_is_refused(own_folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    own_folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ControlError, match="belongs to somebody else"):
        discovery.runtime_dir()


def test_a_path_too_long_for_a_socket_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("DEVKIT_RUNTIME_DIR", str(tmp_path / ("x" * 100)))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    path = discovery.socket_path(tmp_path / "some workspace", "control", 4_194_304)
    assert len(os.fsencode(path)) <= discovery.SOCKET_PATH_LIMIT
    listener = discovery.bind(path)
    listener.close()
    path.unlink()


def test_the_session_folder_is_used_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.delenv("DEVKIT_RUNTIME_DIR")
    session = tmp_path / "s"
    session.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    if len(str(session)) < 60:
        assert discovery.runtime_dir() == session / "devkit"


def test_a_workspace_is_where_its_own_folder_is(tmp_path, monkeypatch):
    (tmp_path / "w" / ".devkit").mkdir(parents=True)
    inside = tmp_path / "w" / "a" / "b"
    inside.mkdir(parents=True)
    assert discovery.workspace_of(inside) == tmp_path / "w"
    assert discovery.workspace_of(tmp_path) == tmp_path
    monkeypatch.setenv("DEVKIT_WORKSPACE", str(tmp_path / "w"))
    assert discovery.workspace_of() == tmp_path / "w"


def test_binding_again_replaces_a_dead_socket(tmp_path):
    path = tmp_path / "s.sock"
    discovery.bind(path).close()
    listener = discovery.bind(path)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
    listener.close()


def test_publishing_again_replaces_what_was_said(tmp_path, serving):
    runtime = serving(tmp_path / "w")
    discovery.publish(dataclasses.replace(runtime, log_file="/x"))
    found = discovery.find(tmp_path / "w")
    assert found is not None
    assert found.log_file == "/x"
