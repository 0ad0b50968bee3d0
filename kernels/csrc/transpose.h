// Rows to panels of columns.

#ifndef CENOTE_TRANSPOSE_H
#define CENOTE_TRANSPOSE_H

#include "lanes.h"
#include "tile.h"

// `num` rows of one head to panels `[size, COLS]`, the last one filled with zeros. Never inlined: with
// it, the compiler keeps the sums of products around it in memory.
static __attribute__((noinline, unused)) void turn(float *panels, const float *rows, ptrdiff_t step, ptrdiff_t num,
                                                   ptrdiff_t size) {
    for (ptrdiff_t first = 0; first < num; first += W) {
        float *to = panels + first / COLS * COLS * size + first % COLS;
        const float *from = rows + first * step;
        const ptrdiff_t count = least(W, num - first);
        for (ptrdiff_t k = 0; k < size; k += W) {
            V v[W];
            for (int i = 0; i < W; i++) v[i] = i < count ? v_load_some(from + i * step + k, mask_of(size - k)) : v_all(0);
            transpose(v);
            for (int i = 0; i < W && k + i < size; i++) v_store(to + (k + i) * COLS, v[i]);
        }
    }
    if (num % COLS && num % COLS <= W) {
        float *to = panels + num / COLS * COLS * size + W;
        for (ptrdiff_t k = 0; k < size; k++) v_store(to + k * COLS, v_all(0));
    }
}

#endif
