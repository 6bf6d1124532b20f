"""CUDA streams of whoever computes in this process."""

import sys


def current(device: int) -> int:
    """The number of torch's current stream on a device; 0, the default one, without torch, or where
    it has not used CUDA yet: then nobody has chosen another."""
    torch = sys.modules.get("torch")
    # To ask one that is for the CPU alone is an error, and one that is not would begin to use it.
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)
