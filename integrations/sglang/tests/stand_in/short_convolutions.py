"""SGLang's short convolutions, of LFM2, are Triton kernels for a GPU. Here they are PyTorch's, so
that the whole engine can run a model with recurrent layers on a CPU."""

from typing import Any

import sgl_kernel
import torch
from torch.nn.functional import conv1d

#: Of other kinds of recurrent layers, whose modules SGLang imports besides.
IMPORTED = ("fused_gdn_gating_cpu", "fused_sigmoid_gating_delta_rule_update_cpu")


def mend() -> None:
    from sglang.srt.models import lfm2

    for name in IMPORTED:
        setattr(torch.ops.sgl_kernel, name, getattr(sgl_kernel, name))
    lfm2.causal_conv1d_fn = _prefill
    lfm2.causal_conv1d_update = _decode


def _prefill(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    query_start_loc: torch.Tensor,
    cache_indices: torch.Tensor,
    has_initial_state: torch.Tensor,
    conv_states: torch.Tensor,
    activation: None,
    **_: Any,
) -> torch.Tensor:
    """Of requests one behind the other, (channels, positions). Their states are changed."""
    kept = weight.shape[1] - 1
    bounds = query_start_loc.tolist()
    parts = []
    for at, slot in enumerate(cache_indices.tolist()):
        new = x[:, bounds[at] : bounds[at + 1]]
        old = conv_states[slot] if has_initial_state[at] else new.new_zeros(len(new), kept)
        whole = torch.cat([old.to(new.dtype), new], 1)
        parts.append(conv1d(whole[None], weight[:, None], bias, groups=len(new))[0])
        conv_states[slot] = whole[:, -kept:]
    return torch.cat(parts, 1)


def _decode(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    activation: None,
    conv_state_indices: torch.Tensor,
) -> torch.Tensor:
    """Of one position of each request, (requests, channels)."""
    slots = conv_state_indices.long()
    whole = torch.cat([conv_state[slots].to(x.dtype), x[:, :, None]], 2)
    conv_state[slots] = whole[:, :, 1:].to(conv_state.dtype)
    out = (whole * weight).sum(2)
    return out if bias is None else out + bias
