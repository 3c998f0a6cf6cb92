"""What the Jupyter server adds: the control API behind its token, and a runtime to be had."""

import asyncio
import json

import pytest
import pytest_asyncio
from pytest_jupyter import jupyter_server
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from devkit.control import discovery
from tests.support.live import DOUBLE, in_folder, live

# Not as a plugin: that would change how the asynchronous tests of every module run.
FIXTURES = vars(jupyter_server)
globals().update(
    {name: one for name, one in FIXTURES.items() if name.startswith(("jp_", "http_", "echo_"))}
)


@pytest.fixture(scope="module")
def runtime():
    with live(models={"double": DOUBLE}) as one, in_folder(one.folder / "run"):
        yield one


@pytest_asyncio.fixture
async def jp_asyncio_loop():
    """The Jupyter server runs in the loop of the test."""
    return asyncio.get_running_loop()


@pytest.fixture
def jp_server_config():
    return {"ServerApp": {"jpserver_extensions": {"devkit.lab": True}}}


@pytest.fixture
def workspace(runtime, monkeypatch):
    monkeypatch.setenv("DEVKIT_WORKSPACE", str(runtime.workspace))
    return runtime.workspace


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A workspace without a runtime."""
    with in_folder(tmp_path / "run"):
        monkeypatch.setenv("DEVKIT_WORKSPACE", str(tmp_path))
        yield tmp_path


async def fetched(jp_fetch, *path, **options):
    return json.loads((await jp_fetch("devkit", "api", *path, **options)).body)


async def heard(socket, kind):
    while True:
        text = await asyncio.wait_for(socket.read_message(), 30)
        assert text is not None, "the connection has ended"
        message = json.loads(text)
        if message["type"] == kind:
            return message


async def closed(socket):
    socket.close()
    while await socket.read_message() is not None:
        pass


async def test_calls_are_passed_on(workspace, jp_fetch):
    status = await fetched(jp_fetch, "runtime")
    assert status["state"] == "running"
    assert status["runtime"]["workspace"] == str(workspace)
    snapshot = await fetched(jp_fetch, "v1", "snapshot")
    assert [one["name"] for one in snapshot["models"]] == ["double"]
    scaled = await fetched(
        jp_fetch, "v1", "models", "double", "scale", method="POST", body='{"count": 2}'
    )
    assert len(scaled["instances"]) == 2
    text = await jp_fetch(
        "devkit", "api", "v1", "models", "double", "config", params={"format": "pbtxt"}
    )
    assert text.headers["Content-Type"].startswith("text/plain")
    assert b"TYPE_FP32" in text.body


async def test_a_refusal_arrives_as_it_was_made(workspace, jp_fetch):
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch("devkit", "api", "v1", "models", "double", "scale", method="POST", body="{")
    assert caught.value.code == 400
    assert json.loads(caught.value.response.body)["kind"] == "ControlError"


@pytest.mark.parametrize(
    "path", ["devkit/api/runtime", "devkit/api/v1/snapshot", "devkit/api/new", "devkit/api/events"]
)
async def test_nothing_without_the_token(
    workspace, jp_serverapp, jp_base_url, http_server_client, path
):
    with pytest.raises(HTTPClientError) as caught:
        await http_server_client.fetch(jp_base_url + path, follow_redirects=False)
    assert caught.value.code in (302, 403)


@pytest.fixture
async def cookies(workspace, jp_base_url, http_server_client, jp_serverapp):
    """What a browser has after the login; another site's page can make it send that."""
    login = await http_server_client.fetch(
        f"{jp_base_url}login?token={jp_serverapp.identity_provider.token}",
        follow_redirects=False, raise_error=False,
    )  # fmt: skip
    found = "; ".join(one.split(";")[0] for one in login.headers.get_list("Set-Cookie"))
    assert found
    return found


async def test_a_cookie_alone_changes_nothing(workspace, cookies, jp_base_url, http_server_client):
    headers = {"Cookie": cookies}
    status = await http_server_client.fetch(f"{jp_base_url}devkit/api/runtime", headers=headers)
    assert status.code == 200
    with pytest.raises(HTTPClientError) as caught:
        await http_server_client.fetch(
            f"{jp_base_url}devkit/api/v1/shutdown", method="POST", body="", headers=headers
        )
    assert caught.value.code == 403
    assert discovery.find(workspace) is not None


async def test_an_inference_with_values_as_json(workspace, jp_fetch):
    asked = {
        "model": "double",
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [3], "data": [1, 2.5, "nan"]}],
    }
    answer = await fetched(jp_fetch, "ask", method="POST", body=json.dumps(asked))
    assert answer["error"] is None
    assert answer["responses"] == [
        {
            "outputs": [
                {
                    "name": "Y", "datatype": "FP32", "shape": [3],
                    "data": [2.0, 5.0, "nan"], "truncated": False,
                }
            ]
        }
    ]  # fmt: skip
    asked["inputs"][0]["shape"] = [2]
    answer = await fetched(jp_fetch, "ask", method="POST", body=json.dumps(asked))
    assert "no FP32 of shape [2]" in answer["error"]["error"]


async def test_a_new_model_from_a_template(workspace, runtime, jp_fetch):
    names = [one["name"] for one in await fetched(jp_fetch, "new")]
    assert names == ["default", "decoupled", "bls", "async", "preprocessing", "torch"]
    body = {"name": "mine", "template": "default", "repository": str(runtime.repository)}
    made = await fetched(jp_fetch, "new", method="POST", body=json.dumps(body))
    assert made["files"][1] == str(runtime.repository / "mine" / "1" / "model.py")
    loaded = await fetched(jp_fetch, "v1", "models", "mine", "load", method="POST", body="{}")
    assert loaded["state"] == "READY"
    for wrong in ({"repository": "/etc"}, {"name": "../mine"}, {}):
        with pytest.raises(HTTPClientError) as caught:
            await jp_fetch(
                "devkit", "api", "new", method="POST", body=json.dumps({**body, **wrong})
            )
        assert caught.value.code == 400
        assert json.loads(caught.value.response.body)["kind"] == "TemplateError"


async def test_one_socket_tells_of_everything(workspace, jp_ws_fetch, jp_fetch):
    socket = await jp_ws_fetch("devkit", "api", "events")
    assert (await heard(socket, "runtime"))["runtime"]["state"] == "running"
    snapshot = (await heard(socket, "snapshot"))["snapshot"]
    pid, last = snapshot["runtime"]["pid"], snapshot["sequence"]
    await socket.write_message(json.dumps({"gauges": 0.5, "since": last, "pid": pid}))
    await heard(socket, "snapshot")
    await jp_fetch("devkit", "api", "v1", "models", "double", "reload", method="POST", body="")
    seen = set()
    while not {"model", "instance"} <= seen:
        for event in (await heard(socket, "events"))["events"]:
            assert event["sequence"] > last
            last = event["sequence"]
            seen.add(event["kind"])
    await closed(socket)


async def test_no_runtime_is_a_state_and_one_can_be_started(nowhere, jp_fetch, jp_ws_fetch):
    status = await fetched(jp_fetch, "runtime")
    assert (status["state"], status["runtime"]) == ("none", None)
    gone = await jp_fetch("devkit", "api", "v1", "snapshot")
    assert gone.headers["Devkit-Runtime"] == "none"
    assert json.loads(gone.body)["kind"] == "NoRuntime"
    socket = await jp_ws_fetch("devkit", "api", "events")
    assert (await heard(socket, "runtime"))["runtime"]["state"] == "none"
    await fetched(jp_fetch, "runtime", method="POST", body="{}")
    await heard(socket, "snapshot")
    assert (await fetched(jp_fetch, "runtime"))["state"] == "running"
    await jp_fetch("devkit", "api", "v1", "shutdown", method="POST", body="")
    while (await heard(socket, "runtime"))["runtime"]["state"] != "none":
        pass
    await closed(socket)


async def test_another_site_gets_no_socket(cookies, jp_base_url, jp_http_port):
    def asked(origin):
        address = f"ws://127.0.0.1:{jp_http_port}{jp_base_url}devkit/api/events"
        return HTTPRequest(address, headers={"Cookie": cookies, "Origin": origin})

    await closed(await websocket_connect(asked(f"http://127.0.0.1:{jp_http_port}")))
    with pytest.raises(HTTPClientError) as caught:
        await websocket_connect(asked("http://elsewhere.example"))
    assert caught.value.code == 403
