"""Tensors that come by DLPack alone, of element types that NumPy does not lend."""

import ctypes
from typing import Any

import numpy as np
import pytest
from conftest import ids

import radixkv


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_kind", ctypes.c_int32), ("device", ctypes.c_int32),
        ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Lender:
    """A tensor on the host, of so many elements of so many bits each."""

    def __init__(self, content: bytes, count: int, bits: int, lanes: int = 1) -> None:
        self.content = ctypes.create_string_buffer(content, len(content))
        self.shape = (ctypes.c_int64 * 1)(count)
        address = ctypes.addressof
        self.tensor = Tensor(
            address(self.content), 1, 0, 1, 1, bits, lanes, address(self.shape), None, 0, None, None
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def test_whole_bytes_are_taken() -> None:
    assert radixkv.image_digest(Lender(b"abcd", 4, 8)) == radixkv.image_digest(b"abcd")
    assert radixkv.image_digest(Lender(b"abcd", 2, 16)) == radixkv.image_digest(b"abcd")


@pytest.mark.parametrize(
    ("count", "bits", "lanes"),
    [(8, 4, 1), (16, 2, 1), (32, 1, 1), (2, 12, 1), (4, 0, 1), (1, 8, 4)],
)
def test_elements_of_no_whole_bytes_are_refused(count: int, bits: int, lanes: int) -> None:
    """Counted as none, all of them would be one image, and nothing of a state would be written."""
    tensor = Lender(b"abcd", count, bits, lanes)
    with pytest.raises(ValueError, match=f"^data: .* {bits} bits"):
        radixkv.image_digest(tensor)
    with radixkv.SnapshotCache() as cache:
        with pytest.raises(ValueError, match=rf"^parts\[0\]: .* {bits} bits"):
            cache.insert(ids(4), "state", parts=[tensor])
        assert cache.stats().entry_count == 0
    with pytest.raises(ValueError, match="^ids: "):
        radixkv.Tokens(tensor)


def test_floats_of_ml_dtypes_are_taken(cache: radixkv.Cache) -> None:
    """NumPy lends no array of those types, which it does not know."""
    types = pytest.importorskip("ml_dtypes")
    runners = [
        radixkv.Runner(
            cache.table, layers=1, query_heads=2, kv_heads=2, head_dim=64, dtype=dtype,
            kv_dtype=kv_dtype,
        )
        for dtype in (types.bfloat16, np.dtype(types.bfloat16))
        for kv_dtype in (None, types.float8_e4m3fn)
    ]
    q = np.random.default_rng(4).standard_normal((5, 4, 64)).astype(types.bfloat16)[:, :2]
    plan = radixkv.Plan(cache.table)
    with cache.begin(ids(5)) as sequence:
        plan.set(np.array([sequence.id]), np.zeros(1, np.int64), np.array([5]))
        for runner in runners:
            out, bits = np.zeros((2, *q.shape), types.bfloat16)
            runner.append_prefill(plan, 0, q, q, q, out)
            given = q.view(np.uint16)
            runner.append_prefill(plan, 0, given, given, given, bits.view(np.uint16))
            assert out.any() and (out == bits).all()
            out.flags.writeable = False
            with pytest.raises(ValueError, match="^out: "):
                runner.append_prefill(plan, 0, q, q, q, out)
    with pytest.raises(TypeError, match="tokens: 32-bit"):
        cache.match(q.ravel())
    assert radixkv.image_digest(out) == radixkv.image_digest(out.tobytes())
