// Barriers and boxes.
#include "units.hpp"
#include "machine.hpp"

namespace rkv::emulation {

// Rows of 128 bytes exchange their pieces of 16 by bits 7 to 9 of the address.
static uint32_t exchanged(uint32_t at) { return at ^ (at >> 3 & 0x70); }

bool Units::is_early() {
    const Landing landing = machine_.settings.landing;
    return landing == Landing::kEarly || (landing == Landing::kRandom && machine_.die(2) == 0);
}

void Units::meet(int number, int threads, bool waits) {
    Numbered &here = numbered_[number];
    const int thread = machine_.thread();
    if (here.arrived > 0 && here.threads != threads) {
        fail("threads name different counts for a barrier");
    }
    here.threads = threads;
    const uint64_t generation = here.generation;
    clocks_.release(thread, here.clock);
    machine_.progress();
    if (++here.arrived == threads) {
        here.arrived = 0;
        here.generation++;
        here.known = here.clock;
    }
    if (waits) {
        machine_.wait_until([&] { return here.generation != generation; });
        clocks_.acquire(thread, here.known);
    }
}

void Units::barrier_init(uint32_t at, int count) {
    if (at % 8 != 0) {
        fail("a barrier is misaligned");
    }
    machine_.shared().bytes(at, 8);
    if (barriers_.count(at) != 0 || barriers_.size() == Clocks::kBarriersMax) {
        fail("a barrier is made twice, or there are too many");
    }
    Barrier &made = barriers_[at];
    made.count = made.pending = count;
    made.number = static_cast<int>(barriers_.size()) - 1;
    made.maker = machine_.thread();
    made.made_at = clocks_.now(made.maker);
}

void Units::barrier_init_fence() {
    for (auto &entry : barriers_) {
        entry.second.is_fenced |= entry.second.maker == machine_.thread();
    }
}

Units::Barrier &Units::barrier(uint32_t at) {
    const auto found = barriers_.find(at);
    if (found == barriers_.end()) {
        fail("there is no barrier at this place");
    }
    Barrier &barrier = found->second;
    if (!clocks_.knows(machine_.thread(), barrier.maker, barrier.made_at)) {
        fail("a barrier is used before it is known to be there");
    }
    return barrier;
}

void Units::end_phase(Barrier &barrier) {
    if (barrier.pending == 0 && barrier.bytes == 0) {
        barrier.phase++;
        barrier.pending = barrier.count;
        barrier.known = barrier.clock;
        machine_.progress();
    }
}

void Units::barrier_arrive(uint32_t at, int bytes) {
    Barrier &here = barrier(at);
    clocks_.release(machine_.thread(), here.clock);
    here.bytes += bytes;
    here.pending--;
    machine_.progress();
    end_phase(here);
}

void Units::barrier_wait(uint32_t at, int parity) {
    Barrier &here = barrier(at);
    machine_.wait_until([&] {
        if (machine_.settings.landing == Landing::kRandom && machine_.die(8) == 0) {
            land_some();
        }
        return (here.phase & 1) != static_cast<uint32_t>(parity);
    });
    clocks_.acquire(machine_.thread(), here.known);
}

// The box that begins there, if there is one; all of it is in memory that may be read.
Units::Box Units::box_of(const TensorMap *map, const int (&begin)[4]) {
    Box box;
    if (reinterpret_cast<uintptr_t>(map) % 64 != 0) {
        fail("a tensor map is misaligned");
    }
    memcpy(&box.map, map, sizeof box.map);
    if (box.map.magic != BoxMap::kMagic || box.map.is_exchanged == 0 || box.map.box[0] != 64) {
        fail("this is no map of boxes of rows of 128 bytes");
    }
    std::copy(begin, begin + 4, box.at);
    for (int dim = 0; dim < 4; dim++) {
        // The driver fills what lies outside with zeros; here nobody asks for it.
        if (begin[dim] < 0 || begin[dim] + box.map.box[dim] > box.map.extents[dim]) {
            fail("a box reaches beyond the tensor");
        }
    }
    for (uint32_t row = 0; row < box.rows(); row++) {
        machine_.touch_global(box.row(row), 128, 16);
    }
    return box;
}

void Units::prefetch_box(const TensorMap *map, const int (&begin)[4]) { box_of(map, begin); }

void Units::copy_box(uint32_t to, const TensorMap *map, uint32_t at, const int (&begin)[4]) {
    Box box = box_of(map, begin);
    if (to % 1024 != 0) {
        fail("a box does not begin where the exchange of pieces does");
    }
    Barrier &here = barrier(at);
    if (!here.is_fenced) {
        fail("a box is to arrive at a barrier that was not fenced");
    }
    box.to = to;
    box.barrier = at;
    machine_.shared().bytes(to, 16);
    machine_.shared().bytes(to + box.rows() * 128 - 16, 16);
    clocks_.begin_box(to, box.rows() * 128, machine_.thread());
    boxes_.push_back(box);
    machine_.progress();
    if (is_early()) {
        land(box);
        boxes_.pop_back();
    }
}

const uint8_t *Units::Box::row(uint32_t number) const {
    uint64_t from = map.address + at[0] * 2;
    for (int dim = 1; dim < 4; dim++) {
        from += (at[dim] + number % map.box[dim]) * map.strides[dim - 1];
        number /= map.box[dim];
    }
    return reinterpret_cast<const uint8_t *>(from);
}

void Units::land(const Box &box) {
    uint32_t to = box.to;
    for (uint32_t row = 0; row < box.rows(); row++, to += 128) {
        for (uint32_t piece = 0; piece < 8; piece++) {
            memcpy(machine_.shared().bytes(exchanged(to + piece * 16), 16),
                   box.row(row) + piece * 16, 16);
        }
    }
    Barrier &barrier = barriers_.at(box.barrier);
    const uint32_t bytes = to - box.to;
    clocks_.end_box(box.to, bytes, barrier.number, barrier.phase + 1);
    barrier.bytes -= bytes;
    barrier.clock.resize(clocks_.thread_count() + Clocks::kBarriersMax, 0);
    barrier.clock[clocks_.thread_count() + barrier.number] = barrier.phase + 1;
    machine_.progress();
    end_phase(barrier);
}

bool Units::land_some() {
    if (boxes_.empty()) {
        return false;
    }
    const size_t which = machine_.die(static_cast<uint32_t>(boxes_.size()));
    const Box box = boxes_[which];
    boxes_.erase(boxes_.begin() + which);
    land(box);
    return true;
}

} // namespace rkv::emulation
