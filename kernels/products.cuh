// Products of matrices by four warps: wgmma, m64nNk16 with sums in f32. Under nvcc only.
//
// The accumulators lie as those of mma.sync do, eight columns after eight columns: the thread has
// rows lane / 4 and lane / 4 + 8 of its warp's sixteen, columns lane % 4 * 2 and the next one. The
// left operand in registers lies as mma.sync has it, too.
#pragma once

// Operands of the instruction, and the registers that they stand for.
#define RKV_OPERANDS_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RKV_OPERANDS_40 RKV_OPERANDS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define RKV_OPERANDS_56 \
    RKV_OPERANDS_40 \
    ", %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55"
#define RKV_OPERANDS_64 RKV_OPERANDS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define RKV_OPERANDS_128 \
    RKV_OPERANDS_64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
    "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, " \
    "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
    "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define RKV_SUMS_4(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define RKV_SUMS_16(d, i) \
    RKV_SUMS_4(d, i), RKV_SUMS_4(d, i + 1), RKV_SUMS_4(d, i + 2), RKV_SUMS_4(d, i + 3)
#define RKV_SUMS_32(d) RKV_SUMS_16(d, 0), RKV_SUMS_16(d, 4)
#define RKV_SUMS_40(d) RKV_SUMS_32(d), RKV_SUMS_4(d, 8), RKV_SUMS_4(d, 9)
#define RKV_SUMS_56(d) \
    RKV_SUMS_32(d), RKV_SUMS_16(d, 8), RKV_SUMS_4(d, 12), RKV_SUMS_4(d, 13)
#define RKV_SUMS_64(d) RKV_SUMS_32(d), RKV_SUMS_16(d, 8), RKV_SUMS_16(d, 12)
#define RKV_SUMS_128(d) \
    RKV_SUMS_64(d), RKV_SUMS_16(d, 16), RKV_SUMS_16(d, 20), RKV_SUMS_16(d, 24), \
        RKV_SUMS_16(d, 28)

// d = left * right, or d += left * right, both in shared memory, their rows along the sum.
// `sums` is columns / 2; a, b, c are the next operands' numbers.
#define RKV_MULTIPLY_SHARED(Type, type, columns, sums, a, b, c) \
    RKV_DEVICE void multiply_shared(Type, float (&d)[columns / 8][4], uint64_t left, \
                                    uint64_t right, int is_added) { \
        asm volatile("{\n" \
                     ".reg .pred added;\n" \
                     "setp.ne.b32 added, %" #c ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." #type "." #type \
                     " {" RKV_OPERANDS_##sums "}, %" #a ", %" #b ", added, 1, 1, 0, 0;\n" \
                     "}" \
                     : RKV_SUMS_##sums(d) \
                     : "l"(left), "l"(right), "r"(is_added)); \
    }

// d += left * right: left in registers, right in shared memory, its rows across the sum.
#define RKV_MULTIPLY_REGISTERS(Type, type, columns, sums, a0, a1, a2, a3, b, c) \
    RKV_DEVICE void multiply_registers(Type, float (&d)[columns / 8][4], \
                                       const uint32_t (&left)[4], uint64_t right) { \
        asm volatile("{\n" \
                     ".reg .pred added;\n" \
                     "setp.ne.b32 added, %" #c ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." #type "." #type \
                     " {" RKV_OPERANDS_##sums "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, " \
                     "%" #b ", added, 1, 1, 1;\n" \
                     "}" \
                     : RKV_SUMS_##sums(d) \
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), \
                       "r"(1)); \
    }

#define RKV_MULTIPLY(Type, type) \
    RKV_MULTIPLY_SHARED(Type, type, 64, 32, 32, 33, 34) \
    RKV_MULTIPLY_SHARED(Type, type, 80, 40, 40, 41, 42) \
    RKV_MULTIPLY_SHARED(Type, type, 112, 56, 56, 57, 58) \
    RKV_MULTIPLY_SHARED(Type, type, 128, 64, 64, 65, 66) \
    RKV_MULTIPLY_REGISTERS(Type, type, 64, 32, 32, 33, 34, 35, 36, 37) \
    RKV_MULTIPLY_REGISTERS(Type, type, 128, 64, 64, 65, 66, 67, 68, 69) \
    RKV_MULTIPLY_REGISTERS(Type, type, 256, 128, 128, 129, 130, 131, 132, 133)

namespace rkv {

RKV_MULTIPLY(Bf16, bf16)
RKV_MULTIPLY(F16, f16)

} // namespace rkv
