// Where positions of a row lie in KV memory.
#pragma once
#include "numbers.cuh"

namespace rkv {

// Number of a position's page among those of its row.
RKV_DEVICE int page_of(int key, const KvPlace &kv) { return divide(key, kv.page_size); }
RKV_DEVICE int position_in_page(int key, const KvPlace &kv) {
    return key - page_of(key, kv) * static_cast<int>(kv.page_size.value);
}

// Where a head of a position begins, in elements.
RKV_DEVICE int64_t place_of(int page, int position, int head, const KvPlace &kv) {
    if (fault(Fault::kWrongPageOffset) && position > 0 &&
        position == static_cast<int>(kv.page_size.value) - 1) {
        position--;
    }
    return page * kv.page_stride + position * kv.position_stride + head * kv.head_stride;
}

} // namespace rkv
