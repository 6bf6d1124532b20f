// What a Hopper block has besides threads: barriers in shared memory, a unit that copies boxes of
// tensors, and one that multiplies matrices behind the back of those who asked for it.
//
// Boxes land and products read and write when they are asked for, as late as is legal, or as a die
// says. Registers of a product hold NaN until it was waited for.
#pragma once
#include "clocks.hpp"
#include <map>
#include <memory>
#include <vector>

namespace rkv {
struct TensorMap;
}

namespace rkv::emulation {

class Machine;

// What the emulated driver makes of a CUtensorMap: four dimensions of 16-bit elements.
struct BoxMap {
    static constexpr uint64_t kMagic = 0x70616d20786f62;
    uint64_t magic;
    uint64_t address;
    uint64_t extents[4];
    uint64_t strides[3]; // of dimensions 1 to 3, in bytes
    uint32_t box[4];
    uint32_t is_exchanged; // in rows of 128 bytes, pieces of 16 by the row's number
};
static_assert(sizeof(BoxMap) <= 128);

// A product as each thread of four warps asks for it.
struct Product {
    float *sums;
    const uint32_t *left_registers; // nullptr: the left operand is in shared memory
    uint64_t left, right;
    int columns;
    bool is_added;
    bool is_across; // the right operand's rows lie across the sum
    float (*number)(uint32_t bits);
};

class Units {
  public:
    explicit Units(Machine &machine);
    ~Units();

    void reset(int threads, size_t shared_bytes);
    Clocks &clocks() { return clocks_; }

    void sync_some(int number, int threads) { meet(number, threads, true); }
    void arrive_some(int number, int threads) { meet(number, threads, false); }

    void barrier_init(uint32_t at, int count);
    void barrier_init_fence();
    void barrier_arrive(uint32_t at, int bytes);
    void barrier_wait(uint32_t at, int parity);

    void prefetch_box(const TensorMap *map, const int (&at)[4]);
    void copy_box(uint32_t to, const TensorMap *map, uint32_t barrier, const int (&at)[4]);
    // Lets a box land, if one is under way.
    bool land_some();

    void products_begin();
    void multiply(const Product &product);
    void products_commit();
    void products_wait(size_t pending);

    // What a block that ends must not leave behind; nullptr: nothing.
    const char *unfinished() const;

  private:
    struct Numbered { // barriers by number
        int arrived = 0, threads = 0;
        uint64_t generation = 0;
        Clock clock, known;
    };
    struct Barrier {
        int count = 0, pending = 0, number = 0;
        int64_t bytes = 0;
        uint32_t phase = 0;
        Clock clock, known; // of those who arrived; when the last phase ended
        int maker = -1;
        uint32_t made_at = 0;
        bool is_fenced = false;
    };
    struct Box {
        BoxMap map;
        uint32_t to, barrier;
        int at[4];

        uint32_t rows() const { return map.box[1] * map.box[2] * map.box[3]; }
        // Where a row of 128 bytes comes from.
        const uint8_t *row(uint32_t number) const;
    };
    struct Asked; // a product
    struct Group; // of four warps

    void meet(int number, int threads, bool waits);
    Barrier &barrier(uint32_t at);
    void end_phase(Barrier &barrier);
    Box box_of(const TensorMap *map, const int (&begin)[4]);
    void land(const Box &box);
    Group *convene(const char *kind, const Product *product);
    void depart(Group &group);
    void ask(Group &group);
    void carry_out(Group &group, Asked &asked);
    void finish(Group &group, std::vector<Asked> &of);
    bool is_early();

    Machine &machine_;
    Clocks clocks_;
    std::vector<Numbered> numbered_;
    std::map<uint32_t, Barrier> barriers_;
    std::vector<Box> boxes_;
    std::vector<std::unique_ptr<Group>> groups_;
};

} // namespace rkv::emulation
