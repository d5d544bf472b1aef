"""A repeat is the sender's own, by the identity that it proved."""

import pytest
from certificates import Pki

from ackline import Receiver, Spool, lumberjack

URL = "lumberjack+tls://127.0.0.1:0"


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


def test_senders_behind_one_address_are_told_apart_by_their_certificates(pki, tmp_path):
    cert, key = pki.issue("server", "logs", "DNS:localhost,IP:127.0.0.1")
    agents = {name: pki.issue(name, name, f"DNS:{name}") for name in ("one", "two")}
    options = {"ca": str(pki.ca), "cert": str(cert), "key": str(key), "client_auth": "required"}
    # A second receiver on the same spool knows senders by what stands there.
    for rounds in (("one", "two"), ("one", "two")):
        with Receiver([URL], spool=tmp_path / "spool", options=options) as receiver:
            for name in rounds:
                own, secret = agents[name]
                url = receiver.urls[0]
                with lumberjack.connect(
                    url, ca=str(pki.ca), cert=str(own), key=str(secret), server_name="localhost"
                ) as writer:
                    writer.send([b'{"same":1}', b'{"same":2}'], timeout=20)
    spool = Spool(tmp_path / "spool")
    table = spool.read(columns=["repeat", "attributes", "digest"]).to_table()
    assert table["repeat"].to_pylist() == [False] * 4 + [True] * 4
    senders = [dict(one)["sender"] for one in table["attributes"].to_pylist()]
    assert senders[:4] == senders[4:]
    assert len(set(senders)) == 2
    assert all(sender.startswith("tls:") for sender in senders)
    digests = table["digest"].to_pylist()
    assert digests[:4] == digests[4:]
    assert len(set(digests)) == 4
