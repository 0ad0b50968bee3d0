// The product that everything here is made of: up to ROWS rows times a panel of COLS columns, held in registers.
//
// A panel is `depth` rows of COLS floats, side by side. Each output is one chain of fused multiply-adds in the order of
// the depth, whatever the number of rows, so a row's result does not depend on which rows are computed beside it.

#ifndef CENOTE_TILE_H
#define CENOTE_TILE_H

#include "simd.h"

#define COLS (2 * W)
#if W == 16
#define ROWS 14
#else
#define ROWS 6
#endif

// How far the depth is unrolled: with AVX2 a core that shares its units with another's thread is held up by the number of
// instructions.
#if W == 16
#define UNROLLED _Pragma("GCC unroll 2")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

// `sums[r][c] += rows[r] * panel`, for a number of rows that the compiler knows; the second column only where `wide`.
// Elements of a row lie `along` floats apart, rows of the panel `panel_step`, and are fetched `ahead` of their use, if
// that is not 0.
INLINE void multiply_apart(int num, int wide, int ahead, V sums[ROWS][2], const float *rows, ptrdiff_t step,
                           ptrdiff_t along, const float *panel, ptrdiff_t panel_step, ptrdiff_t depth) {
    UNROLLED for (ptrdiff_t k = 0; k < depth; k++) {
        const V left = v_load(panel + k * panel_step), right = wide ? v_load(panel + k * panel_step + W) : left;
        for (int c = 0; ahead && c < COLS; c += 16) __builtin_prefetch(panel + (k + ahead) * panel_step + c);
#pragma GCC unroll 16
        for (int r = 0; r < num; r++) {
            const V x = v_all(rows[r * step + k * along]);
            sums[r][0] = v_fma(x, left, sums[r][0]);
            if (wide) sums[r][1] = v_fma(x, right, sums[r][1]);
        }
    }
}

// The same where both lie side by side.
INLINE void multiply(int num, int ahead, V sums[ROWS][2], const float *rows, ptrdiff_t step, const float *panel,
                     ptrdiff_t depth) {
    multiply_apart(num, 1, ahead, sums, rows, step, 1, panel, COLS, depth);
}

// Runs DO(n) for `num` rows, n being `num` as a constant.
#if W == 16
#define FOR_ROWS(num, DO) \
    switch (num) { \
        case 1: DO(1) break; \
        case 2: DO(2) break; \
        case 3: DO(3) break; \
        case 4: DO(4) break; \
        case 5: DO(5) break; \
        case 6: DO(6) break; \
        case 7: DO(7) break; \
        case 8: DO(8) break; \
        case 9: DO(9) break; \
        case 10: DO(10) break; \
        case 11: DO(11) break; \
        case 12: DO(12) break; \
        case 13: DO(13) break; \
        case 14: DO(14) break; \
    }
#else
#define FOR_ROWS(num, DO) \
    switch (num) { \
        case 1: DO(1) break; \
        case 2: DO(2) break; \
        case 3: DO(3) break; \
        case 4: DO(4) break; \
        case 5: DO(5) break; \
        case 6: DO(6) break; \
    }
#endif

// One panel of `product`; its second half only where `wide`.
INLINE void product_panel(int num, int wide, int more, float *out, ptrdiff_t out_step, const float *rows,
                          ptrdiff_t rows_step, const float *panel, ptrdiff_t depth) {
    V sums[ROWS][2];
    for (int r = 0; r < num; r++) {
        sums[r][0] = more ? v_load(out + r * out_step) : v_all(0);
        sums[r][1] = more && wide ? v_load(out + r * out_step + W) : v_all(0);
    }
    multiply_apart(num, wide, 0, sums, rows, rows_step, 1, panel, COLS, depth);
    for (int r = 0; r < num; r++) {
        v_store(out + r * out_step, sums[r][0]);
        if (wide) v_store(out + r * out_step + W, sums[r][1]);
    }
}

// `out = rows * panels`, with `more` added to what is there: the columns `from`, a multiple of W, to `to`, whole vectors.
INLINE void product(int num, int more, float *out, ptrdiff_t out_step, const float *rows, ptrdiff_t rows_step,
                    const float *panels, ptrdiff_t depth, ptrdiff_t from, ptrdiff_t to) {
    ptrdiff_t col = from;
    if (col % COLS && col < to) {
        product_panel(num, 0, more, out + col, out_step, rows, rows_step, panels + (col - W) * depth + W, depth);
        col += W;
    }
    for (; col + W < to; col += COLS)
        product_panel(num, 1, more, out + col, out_step, rows, rows_step, panels + col * depth, depth);
    if (col < to) product_panel(num, 0, more, out + col, out_step, rows, rows_step, panels + col * depth, depth);
}

INLINE ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

// `num` rows in as few parts as ROWS allows: how many go into each.
INLINE ptrdiff_t evenly(ptrdiff_t num) {
    const ptrdiff_t parts = (num + ROWS - 1) / ROWS;
    return (num + parts - 1) / parts;
}

INLINE ptrdiff_t whole(ptrdiff_t n, ptrdiff_t of) { return (n + of - 1) / of * of; }

#endif
