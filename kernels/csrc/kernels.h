// Kernels that other kernels are made of, so that the compiler compares what is called with what is there.

#ifndef CENOTE_KERNELS_H
#define CENOTE_KERNELS_H

#include "simd.h"

// Neighbouring sequences of equal lengths, as Python's `Run`.
typedef struct {
    int32_t query_start, key_start, num_seqs, query_len, key_len, num_tokens;
} Run;

// Rows that can be looked up: the one of each id, or the first each time where there are no `ids`.
typedef struct {
    const float *rows;
    const int32_t *ids;
    int64_t num;
} Table;

// At most so many are summed.
#define TABLES 3

// What a product gives of the layer norm of a sum of rows of tables: by `tables`, that of each such row less its mean;
// these are summed, multiplied with what the norm multiplied the row with, `scales`, and added to `bias`.
typedef struct {
    const Table *tables;
    int64_t num_tables;
    const float *scales, *bias;
} Known;

KERNEL(known_rows)(float *, const Known *, ptrdiff_t, ptrdiff_t, ptrdiff_t);
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
