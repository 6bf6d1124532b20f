"""E03, E05: the publisher of the second library, read by libzmq."""

import ctypes
import re
import time
from pathlib import Path
from typing import Any

import pytest
import zmq
from conftest import ids

import radixkv
from radixkv import _net_structs, net

LOCAL = "tcp://127.0.0.1:0"


def test_e03_a_subscriber_reads_topic_number_and_payload() -> None:
    table = radixkv.PageTable(64, page_size=16, slot_count=4)
    cache = radixkv.Cache(table, journal_bytes=1 << 16)
    with (
        net.EventPublisher(LOCAL, replay_endpoint=LOCAL, topic="kv@pod") as publisher,
        radixkv.EventEncoder(cache) as encoder,
        zmq.Context() as context,
        context.socket(zmq.SUB) as subscriber,
        context.socket(zmq.DEALER) as dealer,
    ):
        stats = publisher.stats()
        subscriber.connect(f"tcp://127.0.0.1:{stats.port}")
        subscriber.subscribe("kv@")
        # The publisher knows of the subscription when something arrives.
        sent = 0
        while not subscriber.poll(10):
            assert publisher.publish(b"hello") == sent
            sent += 1
        with cache.begin(ids(48)) as sequence:
            sequence.publish(48)
        payload = encoder.encode(1.5)
        assert publisher.publish(payload) == sent
        topic, number, body = subscriber.recv_multipart()
        assert (topic, body) == (b"kv@pod", b"hello")
        while body == b"hello":
            topic, number, body = subscriber.recv_multipart()
        assert (topic, int.from_bytes(number), body) == (b"kv@pod", sent, payload)

        # What was missed is asked for.
        dealer.connect(f"tcp://127.0.0.1:{stats.replay_port}")
        dealer.send_multipart([b"", sent.to_bytes(8)])
        assert dealer.recv_multipart() == [b"", b"kv@pod", number, payload]
        assert dealer.recv_multipart() == [b"", b"", b"\xff" * 8, b""]

        stats = publisher.stats()
        assert stats.published_batch_count == sent + 1 == stats.replay_batch_count
        assert stats.published_byte_count == 5 * sent + len(payload)
        deadline = time.monotonic() + 10
        while publisher.stats().replay_request_count == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert publisher.stats().replay_request_count == 1


def test_e05_nobody_listens() -> None:
    for replay_endpoint, kept in [(LOCAL, 2), (None, 0)]:
        with net.EventPublisher(
            LOCAL, replay_endpoint=replay_endpoint, replay_batch_limit=2
        ) as publisher:
            assert [publisher.publish(b"") for _ in range(5)] == list(range(5))
            assert publisher.stats().replay_batch_count == kept
    publisher.close()
    with pytest.raises(ValueError, match="closed"):
        publisher.publish(b"")
    with pytest.raises(ValueError, match="closed"):
        publisher.stats()


def test_m01_what_is_refused() -> None:
    for endpoint in ["", "http://x:1", "tcp://127.0.0.1"]:
        with pytest.raises(radixkv.InvalidArgument, match="config.endpoint"):
            net.EventPublisher(endpoint)
    with pytest.raises(ValueError, match="topic: has a NUL"):
        net.EventPublisher(LOCAL, topic="a\0b")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("endpoint: str", {"endpoint": None}),
        ("replay_endpoint: str", {"replay_endpoint": 5}),
        ("topic: str", {"topic": b"kv"}),
        ("data_parallel_rank: int", {"data_parallel_rank": "1"}),
        ("queue_batch_limit: int", {"queue_batch_limit": 1.5}),
        ("library: a path", {"library": 5}),
    ]
    for message, given in wrong:
        with pytest.raises(TypeError, match=f"^{message} is needed, not "):
            net.EventPublisher(**({"endpoint": LOCAL} | given))
    wrong = [
        ("url: str", {"url": None}),
        ("prefix: str", {"prefix": b""}),
        ("endpoint: str", {"endpoint": 9}),
        ("ttl_s: int", {"ttl_s": "1"}),
        ("connection_count: int", {"connection_count": None}),
        ("ca_file: a path", {"ca_file": 5}),
    ]
    for message, given in wrong:
        with pytest.raises(TypeError, match=f"^{message} is needed, not "):
            net.Store(**({"url": "redis://127.0.0.1:1"} | given))
    with pytest.raises(ValueError, match="queue_batch_limit 0 is not 1 to"):
        net.EventPublisher(LOCAL, queue_batch_limit=0)
    with net.EventPublisher(LOCAL) as publisher:
        assert publisher.publish(bytearray(b"a")) == 0
        assert publisher.publish(memoryview(b"abc")[::2]) == 1
        assert publisher.stats().published_byte_count == 3
        for payload in (None, 5, "text"):
            with pytest.raises(TypeError, match="^payload: bytes are needed, not "):
                publisher.publish(payload)  # type: ignore[arg-type]
        taken = f"tcp://127.0.0.1:{publisher.stats().port}"
        with pytest.raises(net.NetworkError, match="config.endpoint") as refused:
            net.EventPublisher(taken)
        assert isinstance(refused.value, radixkv.Error) and refused.value.status == 200
    with pytest.raises(net.NetworkError, match="nowhere.so cannot be loaded"):
        net.EventPublisher(LOCAL, library="/nowhere.so")
    with pytest.raises(net.NetworkError, match="is no libradixkv_net"):
        net.EventPublisher(LOCAL, library="libm.so.6")


def test_p01_structs_are_those_of_the_header() -> None:
    headers = [Path(__file__).parents[3] / "include" / it for it in ("radixkv_net.h", "radixkv.h")]
    text = "".join(it.read_text() for it in headers)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    version = re.search(r"#define RKV_NET_ABI_VERSION (\d+)", text)
    assert version and int(version[1]) == net.ABI_VERSION
    structs: list[tuple[str, type[ctypes.Structure]]] = [
        ("net_publisher_config", _net_structs.Config),
        ("net_publisher_stats", _net_structs.Stats),
        ("net_store_config", _net_structs.StoreConfig),
        ("remote_store", _net_structs.RemoteStore),
    ]
    pointers = {"char*": "c_char_p", "void*": "c_void_p", "rkv_remote_call": "c_void_p"}
    for name, struct in structs:
        body = re.search(rf"struct rkv_{name} \{{(.*?)\n\}}", text, re.DOTALL)
        assert body
        fields = re.findall(r"(\w+)\s*(\*?)(\w+);", body[1])
        named = [
            (field, pointers.get(kind + star, f"c_{kind.removesuffix('_t')}"))
            for kind, star, field in fields
        ]
        ours = [(field[0], field[1].__name__) for field in struct._fields_]
        # uint32_t is c_uint, uint64_t is c_ulong.
        widths = {"c_uint": "c_uint32", "c_ulong": "c_uint64", "c_ushort": "c_uint16"}
        assert [(field, widths.get(kind, kind)) for field, kind in ours] == named
