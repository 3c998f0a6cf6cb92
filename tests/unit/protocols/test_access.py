"""Access flags beside what parity cases show: refused texts, and gRPC over TLS with real keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import trustme
from tritonclient.utils import InferenceServerException

from devkit.contract import flags
from devkit.protocols import access
from devkit.protocols.access import AccessError
from tests.support.live import DOUBLE, Live, live

VALUES = flags.parse([]).values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense:a=b", "unknown restricted api 'nonsense'"),
        ("statistics:ab", "'<config name>:<setting>=<value>'. Got statistics:ab"),
        ("statistics", "'<config name>:<setting>=<value>'. Got statistics"),
    ],
)
def test_a_restriction_that_cannot_be_taken(text: str, says: str):
    with pytest.raises(AccessError) as refusal:
        access.restrictions("http-restricted-api", [text])
    assert says in refusal.value.message


def test_a_part_may_have_one_key():
    with pytest.raises(AccessError, match="can not be specified in multiple config groups"):
        access.restrictions("grpc-restricted-protocol", ["health:a=b", "health,trace:c=d"])


def test_a_pattern_that_is_none():
    with pytest.raises(AccessError, match=r"'\(' is not a regular expression"):
        access.of_http({**VALUES, "http_header_forward_pattern": "("})


def test_nothing_asked_for_costs_nothing():
    assert access.of_http(VALUES) is None
    assert access.of_grpc(VALUES).plain


def test_tls_without_its_files(tmp_path: Path):
    with pytest.raises(AccessError, match="gRPC over TLS needs --grpc-server-cert"):
        access.of_grpc({**VALUES, "grpc_use_ssl": True})
    missing = {"grpc_use_ssl": True, "grpc_server_cert": str(tmp_path / "none.pem")}
    with pytest.raises(AccessError, match=r"none\.pem cannot be read"):
        access.of_grpc({**VALUES, **missing})


class Keys:
    """Certificates on disk: of the server, of a client, and of who signed them."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.root = folder / "root.pem"
        authority.cert_pem.write_to_path(self.root)
        self.server = self._write(folder, "server", authority.issue_cert("localhost"))
        self.client = self._write(folder, "client", authority.issue_cert("client.example"))

    @staticmethod
    def _write(folder: Path, name: str, issued: Any) -> tuple[Path, Path]:
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return certificate, key

    def flags(self, *, mutual: bool) -> list[str]:
        certificate, key = self.server
        more = ["--grpc-use-ssl-mutual=true", f"--grpc-root-cert={self.root}"] if mutual else []
        return [
            "--grpc-use-ssl=true", f"--grpc-server-cert={certificate}", f"--grpc-server-key={key}",
            *more,
        ]  # fmt: skip


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module", params=[False, True], ids=["one-sided", "mutual"])
def served(request: pytest.FixtureRequest, keys: Keys) -> Iterator[tuple[Live, bool]]:
    mutual = bool(request.param)
    with live(*keys.flags(mutual=mutual), models={"double": DOUBLE}) as runtime:
        yield runtime, mutual


def where(runtime: Live) -> str:
    url = runtime.client().status().runtime.url("grpc")
    return f"localhost:{url.rpartition(':')[2]}"


def client(runtime: Live, keys: Keys, *, certified: bool) -> Any:
    certificate, key = keys.client
    return tritonclient.grpc.InferenceServerClient(
        where(runtime), ssl=True, root_certificates=str(keys.root),
        private_key=str(key) if certified else None,
        certificate_chain=str(certificate) if certified else None,
    )  # fmt: skip


def test_grpc_over_tls(served: tuple[Live, bool], keys: Keys):
    runtime, mutual = served
    with client(runtime, keys, certified=mutual) as secure:
        given = tritonclient.grpc.InferInput("X", [2], "FP32")
        given.set_data_from_numpy(np.array([1, 2], np.float32))
        assert secure.infer("double", [given]).as_numpy("Y").tolist() == [2, 4]


def test_who_has_no_key_is_not_let_in(served: tuple[Live, bool], keys: Keys):
    runtime, mutual = served
    with (
        tritonclient.grpc.InferenceServerClient(where(runtime)) as plain,
        pytest.raises(InferenceServerException),
    ):
        plain.is_server_live(client_timeout=5)
    if mutual:
        with (
            client(runtime, keys, certified=False) as bare,
            pytest.raises(InferenceServerException) as refusal,
        ):
            bare.is_server_live(client_timeout=5)
        assert refusal.value.status() in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")
