"""The emulated CUDA device of the library's own tests, and tensors on it that have nothing but
DLPack. Without RADIXKV_EMULATED_CUDA, the folder that `cargo test --test emulated_cuda` leaves,
there is none."""

import ctypes
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CUDA = 2  # kDLCUDA


class _Tensor(ctypes.Structure):
    """DLManagedTensor, with the DLTensor that it begins with."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_LENT: dict[int, Any] = {}
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = (
    ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
)


class CudaTensor:
    """Numbers on the device. `lent` counts who has them by DLPack; `streams` are the streams that
    were named when they were asked for."""

    def __init__(self, device: "Device", address: int, like: NDArray[Any], number: int = 0) -> None:
        self.device, self.address, self.number = device, address, number
        self.shape, self.dtype = like.shape, like.dtype
        self.strides = [stride // like.itemsize for stride in like.strides]
        self.lent, self.streams = 0, list[Any]()
        self._deleter = _DELETER(self._let_go)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.number

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.streams.append(stream)
        count = len(self.shape)
        shape, strides = ((ctypes.c_int64 * count)(*it) for it in (self.shape, self.strides))
        code = {"i": 0, "u": 1, "f": 2}[self.dtype.kind]
        tensor = _Tensor(
            self.address, CUDA, self.number, count, code, self.dtype.itemsize * 8, 1,
            ctypes.addressof(shape), ctypes.addressof(strides), 0, None,
            ctypes.cast(self._deleter, ctypes.c_void_p),
        )
        # Whoever has it may keep it longer than anybody keeps this object.
        _LENT[ctypes.addressof(tensor)] = (self, tensor, shape, strides)
        self.lent += 1
        return _capsule(ctypes.addressof(tensor), b"dltensor", None)

    def _let_go(self, tensor: int) -> None:
        self.lent -= 1
        del _LENT[tensor]

    def now(self) -> NDArray[Any]:
        """What lies there, whatever is still to come: emulated memory is the host's."""
        assert [1 if n < 2 else s for n, s in zip(self.shape, self.strides, strict=True)] == [
            1 if n < 2 else math.prod(self.shape[at + 1 :]) for at, n in enumerate(self.shape)
        ]
        size = math.prod(self.shape) * self.dtype.itemsize
        return np.frombuffer(ctypes.string_at(self.address, size), self.dtype).reshape(self.shape)


class DescribedTensor:
    """The same memory for those that know `__cuda_array_interface__` alone."""

    def __init__(self, tensor: CudaTensor, read_only: bool = False) -> None:
        size = tensor.dtype.itemsize
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            "shape": tensor.shape,
            "typestr": tensor.dtype.str,
            "data": (tensor.address, read_only),
            "strides": tuple(stride * size for stride in tensor.strides),
            "version": 3,
        }


class Device:
    """The driver, its device made current."""

    def __init__(self, folder: Path) -> None:
        # Its SONAME is what the library asks for: it takes this one.
        self.driver = ctypes.CDLL(str(folder / "libcuda.so"), ctypes.RTLD_GLOBAL)
        os.environ["RADIXKV_KERNELS"] = str(folder / "kernels")
        context, number = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(number), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
        self.call("cuCtxPushCurrent_v2", context)
        # Work on streams is done as late as may be.
        self.driver.rkv_emulator_set(1, 1, 1, 0, 1)
        self.driver.rkv_emulator_memory.restype = ctypes.c_size_t
        self.driver.rkv_emulator_fault.restype = ctypes.c_size_t

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.driver, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def tensor(self, array: NDArray[Any], number: int = 0) -> CudaTensor:
        """A copy on the device, for as long as the process lives, with the array's strides."""
        base = array if array.base is None or array.flags.c_contiguous else array.base
        assert isinstance(base, np.ndarray) and base.flags.c_contiguous
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(base.nbytes, 1)))
        source = ctypes.c_void_p(base.ctypes.data)
        self.call("cuMemcpyHtoD_v2", address, source, ctypes.c_size_t(base.nbytes))
        offset = array.ctypes.data - base.ctypes.data
        return CudaTensor(self, address.value + offset, array, number)

    def zeros(self, *shape: int, dtype: Any = np.float16) -> CudaTensor:
        return self.tensor(np.zeros(shape, dtype))

    def stream(self) -> int:
        """One that doesn't wait for the default stream."""
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), 1)
        assert made.value is not None
        return made.value

    def synchronize(self, stream: int) -> None:
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def holds(self, address: int) -> bool:
        """Whether it is the device's memory."""
        return bool(self.driver.rkv_emulator_holds(ctypes.c_void_p(address), ctypes.c_size_t(1)))

    def allocations(self) -> int:
        """Pieces of the device's memory that nobody gave back."""
        return int(self.driver.rkv_emulator_memory())

    def fault(self) -> str:
        """What was done wrong on the device."""
        text = ctypes.create_string_buffer(4096)
        self.driver.rkv_emulator_fault(text, ctypes.c_size_t(len(text)))
        return text.value.decode()


def device() -> Device | None:
    folder = os.environ.get("RADIXKV_EMULATED_CUDA")
    return Device(Path(folder)) if folder else None
