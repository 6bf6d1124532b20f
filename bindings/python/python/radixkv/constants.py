"""Numbers of the header that results contain."""

from typing import Final

# Bits of features().
FEATURE_RADIX_INDEX: Final = 1
FEATURE_BLOCK_HASH_INDEX: Final = 2
FEATURE_CUDA: Final = 4

# Levels of set_log().
LOG_OFF: Final = 0
LOG_ERROR: Final = 1

# Kinds of journal records. Expect others.
JOURNAL_STORED: Final = 1
JOURNAL_REMOVED: Final = 2
JOURNAL_MOVED: Final = 3
JOURNAL_CLEARED: Final = 4

# Why pages were removed. Expect others.
REASON_CAPACITY: Final = 1
REASON_CALLER: Final = 2
REASON_INVALIDATED: Final = 3
REASON_REPLACED: Final = 4
REASON_DESTROYED: Final = 5
REASON_LIMIT: Final = 6

# Directions of a copy: from host memory to a page of the device, and back.
COPY_LOAD: Final = 0
COPY_STORE: Final = 1

# Flag of a fetch that has ended: its time was over before everything had come.
FETCH_END_LATE: Final = 1
