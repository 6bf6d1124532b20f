"""Stands in for the CPU kernels of SGLang, which come from its source alone: their wheels are for
GPUs. All names are there, and raise when they are called: none is on the way of a plain model with
`attention_backend="torch_native"` and `sampling_backend="pytorch"`."""

import sys
import types
from typing import Any, NoReturn

__version__ = "0.4.10"


class _Missing(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def kernel(*_: object, **__: object) -> NoReturn:
            missing = f"sgl_kernel.{name}: SGLang's CPU kernels were not built"
            raise RuntimeError(missing)

        return kernel


sys.modules[__name__].__class__ = _Missing
# What is imported where a model has recurrent layers, whichever they are.
mamba = sys.modules[f"{__name__}.mamba"] = _Missing(f"{__name__}.mamba")
