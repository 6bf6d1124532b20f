// Products of matrices: m64nNk16 of four warps, through descriptors, sums in f32.
#include "machine.hpp"
#include "units.hpp"
#include <cmath>

namespace rkv::emulation {

namespace {

constexpr int kLanes = 128, kRows = 64, kDepth = 16;

// An operand in shared memory, as its 64 bits describe it.
struct Operand {
    uint32_t start, leading, stride;

    explicit Operand(uint64_t bits)
        : start(static_cast<uint32_t>(bits & 0x3fff) << 4),
          leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
          stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4) {
        if (bits >> 62 != 1 || (bits >> 49 & 7) != 0) {
            fail("an operand is not described as rows of 128 bytes with exchanged pieces");
        }
        if (start % 1024 >= 128) {
            fail("an operand does not begin where the exchange of pieces does");
        }
    }

    // Of element (row, depth); `across`: rows lie side by side, depth one below the other.
    uint32_t at(int row, int depth, bool across) const {
        uint32_t linear = start;
        if (across) {
            linear += row / 64 * leading + row % 64 * 2 + depth / 8 * stride + depth % 8 * 128;
        } else {
            linear += row / 8 * stride + row % 8 * 128 + depth * 2;
        }
        return linear ^ (linear >> 3 & 0x70);
    }
};

// What `number` makes of every 16 bits: asking it for each element of a product takes long.
const float *all_numbers(float (*number)(uint32_t bits)) {
    static std::map<float (*)(uint32_t), std::vector<float>> known;
    std::vector<float> &numbers = known[number];
    for (uint32_t bits = numbers.size(); bits < 1 << 16; bits++) {
        numbers.push_back(number(bits));
    }
    return numbers.data();
}

} // namespace

struct Units::Asked {
    std::vector<Product> lanes;
    std::vector<uint32_t> left; // what the registers held when it was asked for
    uint32_t number = 0;        // among the reads of clocks
    std::vector<uint32_t> touched; // 16 bytes each
    bool is_done = false;
};

struct Units::Group {
    int arrived = 0;
    uint64_t generation = 0;
    const char *kind = nullptr;
    Product products[kLanes];
    bool may_ask = false;
    std::vector<Asked> open;
    std::vector<std::vector<Asked>> committed;
    // Sums of products that are under way, by the registers of the first lane.
    struct Sums {
        std::vector<float> values;
        int open = 0;
    };
    std::map<const float *, Sums> sums;
};

Units::Units(Machine &machine) : machine_(machine) {}
Units::~Units() = default;

void Units::reset(int threads, size_t shared_bytes) {
    clocks_.reset(threads, shared_bytes);
    numbered_.assign(16, Numbered{});
    barriers_.clear();
    boxes_.clear();
    groups_.clear();
    for (int i = 0; i < threads / kLanes; i++) {
        groups_.push_back(std::make_unique<Group>());
    }
}

const char *Units::unfinished() const {
    for (const auto &group : groups_) {
        if (!group->open.empty() || !group->committed.empty()) {
            return "a block ends while a product is under way";
        }
    }
    for (const Numbered &barrier : numbered_) {
        if (barrier.arrived != 0) {
            return "a block ends while threads are at a barrier";
        }
    }
    return boxes_.empty() ? nullptr : "a block ends while a box is under way";
}

// Waits until all threads of four warps are at the same instruction. The last one gets the group,
// carries the instruction out and lets the others go.
Units::Group *Units::convene(const char *kind, const Product *product) {
    Group &group = *groups_.at(machine_.thread() / kLanes);
    if (group.arrived > 0 && group.kind != kind) {
        fail("four warps meet in different instructions");
    }
    group.kind = kind;
    if (product != nullptr) {
        group.products[machine_.thread() % kLanes] = *product;
    }
    machine_.progress();
    const uint64_t generation = group.generation;
    if (++group.arrived == kLanes) {
        return &group;
    }
    machine_.wait_until([&] { return group.generation != generation; });
    return nullptr;
}

void Units::depart(Group &group) {
    group.arrived = 0;
    group.generation++;
}

void Units::products_begin() {
    if (Group *group = convene("wgmma.fence", nullptr)) {
        group->may_ask = true;
        depart(*group);
    }
}

void Units::multiply(const Product &product) {
    if (Group *group = convene("wgmma", &product)) {
        ask(*group);
        depart(*group);
    }
}

void Units::products_commit() {
    if (Group *group = convene("wgmma.commit_group", nullptr)) {
        group->committed.push_back(std::move(group->open));
        group->open.clear();
        depart(*group);
    }
}

void Units::products_wait(size_t pending) {
    if (Group *group = convene("wgmma.wait_group", nullptr)) {
        while (group->committed.size() > pending) {
            finish(*group, group->committed.front());
            group->committed.erase(group->committed.begin());
        }
        group->may_ask = false; // registers will be used: a fence must follow
        depart(*group);
    }
}

void Units::ask(Group &group) {
    if (!group.may_ask) {
        fail("a product is asked for without a fence after its registers were used");
    }
    Asked asked;
    asked.lanes.assign(group.products, group.products + kLanes);
    const Product &one = asked.lanes[0];
    for (const Product &lane : asked.lanes) {
        if (lane.left != one.left || lane.right != one.right || lane.is_added != one.is_added) {
            fail("threads describe different operands");
        }
        if (lane.left_registers != nullptr) {
            asked.left.insert(asked.left.end(), lane.left_registers, lane.left_registers + 4);
        }
    }
    // Every 16 bytes that it reads.
    asked.number = clocks_.begin_read(machine_.thread() / kLanes * kLanes);
    const auto touch = [&](uint32_t at) {
        machine_.shared().bytes(at & ~15u, 16);
        asked.touched.push_back(at & ~15u);
    };
    const Operand right(one.right);
    for (int row = 0; row < one.columns; row += one.is_across ? 8 : 1) {
        for (int depth = 0; depth < kDepth; depth += one.is_across ? 1 : 8) {
            touch(right.at(row, depth, one.is_across));
        }
    }
    if (one.left_registers == nullptr) {
        const Operand left(one.left);
        for (int row = 0; row < kRows; row++) {
            touch(left.at(row, 0, false));
            touch(left.at(row, 8, false));
        }
    }
    for (uint32_t at : asked.touched) {
        clocks_.product_reads(asked.number, at, 16);
    }
    // The sums move out of the registers until they are waited for.
    Group::Sums &sums = group.sums[one.sums];
    const int count = one.columns / 2;
    if (sums.open++ == 0) {
        sums.values.clear();
        for (const Product &lane : asked.lanes) {
            sums.values.insert(sums.values.end(), lane.sums, lane.sums + count);
            std::fill(lane.sums, lane.sums + count, NAN);
        }
    }
    // Earlier ones into the same sums come first.
    group.open.push_back(std::move(asked));
    if (is_early()) {
        for (auto &committed : group.committed) {
            for (Asked &earlier : committed) {
                carry_out(group, earlier);
            }
        }
        for (Asked &earlier : group.open) {
            carry_out(group, earlier);
        }
    }
}

// Adds to the sums where they are kept; once.
void Units::carry_out(Group &group, Asked &asked) {
    if (asked.is_done) {
        return;
    }
    asked.is_done = true;
    const Product &one = asked.lanes[0];
    std::vector<float> &values = group.sums.at(one.sums).values;
    const float *numbers = all_numbers(one.number);
    const uint8_t *shared = machine_.shared().bytes(0, 1); // `ask` saw that all of it is inside
    const auto load = [&](uint32_t at) {
        uint16_t bits;
        memcpy(&bits, shared + at, 2);
        return numbers[bits];
    };
    static float left[kRows][kDepth], right[kDepth][256];
    const Operand right_operand(one.right);
    for (int depth = 0; depth < kDepth; depth++) {
        for (int column = 0; column < one.columns; column++) {
            right[depth][column] = load(right_operand.at(column, depth, one.is_across));
        }
    }
    for (int lane = 0; lane < kLanes; lane++) {
        const int row = lane / 32 * 16 + lane % 32 / 4;
        for (int r = 0; r < 4 && one.left_registers != nullptr; r++) {
            const uint32_t bits = asked.left[lane * 4 + r];
            float *to = &left[row + r % 2 * 8][lane % 4 * 2 + r / 2 * 8];
            to[0] = numbers[bits & 0xffff];
            to[1] = numbers[bits >> 16];
        }
    }
    if (one.left_registers == nullptr) {
        const Operand left_operand(one.left);
        for (int row = 0; row < kRows; row++) {
            for (int depth = 0; depth < kDepth; depth++) {
                left[row][depth] = load(left_operand.at(row, depth, false));
            }
        }
    }
    const int count = one.columns / 2;
    for (int row = 0; row < kRows; row++) {
        static float sums[256];
        std::fill(sums, sums + one.columns, 0.0f);
        for (int depth = 0; depth < kDepth; depth++) {
            const float x = left[row][depth];
            for (int column = 0; column < one.columns; column++) {
                sums[column] += x * right[depth][column];
            }
        }
        const int first_lane = row / 16 * 32 + row % 8 * 4, half = row % 16 / 8;
        for (int column = 0; column < one.columns; column++) {
            const int lane = first_lane + column % 8 / 2;
            float &sum = values[lane * count + column / 8 * 4 + half * 2 + column % 2];
            sum = one.is_added ? sum + sums[column] : sums[column];
        }
    }
}

void Units::finish(Group &group, std::vector<Asked> &of) {
    for (Asked &asked : of) {
        const Product &one = asked.lanes[0];
        if (one.left_registers != nullptr) {
            for (int lane = 0; lane < kLanes; lane++) {
                if (memcmp(asked.lanes[lane].left_registers, &asked.left[lane * 4], 16) != 0) {
                    fail("registers of a product were changed before it was waited for");
                }
            }
        }
        carry_out(group, asked);
        for (uint32_t at : asked.touched) {
            clocks_.product_ends(at, 16);
        }
        clocks_.end_read(asked.number);
        Group::Sums &sums = group.sums.at(one.sums);
        if (--sums.open == 0) {
            const int count = one.columns / 2;
            for (int lane = 0; lane < kLanes; lane++) {
                std::copy_n(&sums.values[lane * count], count, asked.lanes[lane].sums);
            }
            group.sums.erase(one.sums);
        }
    }
}

} // namespace rkv::emulation
