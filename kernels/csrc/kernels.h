// Kernels that other kernels are made of, so that the compiler compares what is called with what is there.

#ifndef CENOTE_KERNELS_H
#define CENOTE_KERNELS_H

#include "simd.h"

// Neighbouring sequences of equal lengths, as Python's `Run`.
typedef struct {
    int32_t query_start, key_start, num_seqs, query_len, key_len, num_tokens;
} Run;

KERNEL(linear)
(float *, const float *, const float *, const float *, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, int);
void JOINED(linear_part, ISA)(float *, const float *, const float *, const float *, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t,
                              ptrdiff_t, ptrdiff_t);
KERNEL(add_norm)
(float *, const float *, const float *, const float *, const float *, float, ptrdiff_t, ptrdiff_t, ptrdiff_t,
 ptrdiff_t);
struct Distances;
__attribute__((visibility("default"))) int JOINED(attend, ISA)(
    float *, const float *, const float *, const float *, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t,
    ptrdiff_t, float, int, ptrdiff_t, const int64_t *, const int32_t *, ptrdiff_t, const struct Distances *);
KERNEL(int8_linear)
(float *, uint8_t *, const float *, const int8_t *, const int32_t *, const float *, const float *, ptrdiff_t, ptrdiff_t,
 ptrdiff_t, ptrdiff_t, int);
KERNEL(int8_attention_room)(ptrdiff_t *, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t);
KERNEL(int8_attention)
(float *, uint8_t *, const float *, const float *, const float *, const int32_t *, ptrdiff_t, ptrdiff_t, ptrdiff_t,
 ptrdiff_t, ptrdiff_t, float);

#endif
