"""Layouts of the structs that lie in arrays: `numpy.zeros(256, radixkv.dtypes.sequence_info)`.

Their fields are those of the structs in radixkv.h, and of the classes of the same names.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._radixkv import layouts

_BY_NAME: dict[str, np.dtype[Any]] = {name: np.dtype(entry) for name, entry in layouts().items()}

match = _BY_NAME["match"]
probe = _BY_NAME["probe"]
group_cost = _BY_NAME["group_cost"]
locked_page = _BY_NAME["locked_page"]
evicted_page = _BY_NAME["evicted_page"]
sequence_info = _BY_NAME["sequence_info"]
publish_result = _BY_NAME["publish_result"]
published_group = _BY_NAME["published_group"]
group_stats = _BY_NAME["group_stats"]
fork_child = _BY_NAME["fork_child"]
page_copy = _BY_NAME["page_copy"]
journal_record = _BY_NAME["journal_record"]
journal_item = _BY_NAME["journal_item"]
copy_job = _BY_NAME["copy_job"]
fetch_end = _BY_NAME["fetch_end"]


def empty(count: int, kind: str) -> NDArray[Any]:
    """A new array of a layout, or of a type by NumPy's short name."""
    return np.empty(count, _BY_NAME.get(kind, kind))
