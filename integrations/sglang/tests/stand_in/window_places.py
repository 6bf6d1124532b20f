"""SGLang's attention for a CPU, `torch_native`, writes the K and V of a sliding window's layer to
their places in the window's pool, and reads them at the places of the full one: out of bounds, with
any cache. Here it reads where it wrote, so that the whole engine can run such a model.
"""

from typing import Any


def mend() -> None:
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    for name in ("_run_sdpa_forward_extend", "_run_sdpa_forward_decode"):
        call = getattr(TorchNativeAttnBackend, name)
        if not hasattr(call, "mended"):
            setattr(TorchNativeAttnBackend, name, _mended(call))


def _mended(call: Any) -> Any:
    def mended(
        self: Any, q: Any, o: Any, k: Any, v: Any, rows: Any, *args: Any, **options: Any
    ) -> Any:
        if self.use_sliding_window_kv_pool and options["sliding_window_size"] is not None:
            rows = self.token_to_kv_pool.full_to_swa_index_mapping[rows.long()]
        return call(self, q, o, k, v, rows, *args, **options)

    mended.mended = True  # type: ignore[attr-defined]
    return mended
