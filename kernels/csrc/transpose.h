// Rows to columns.

#ifndef CENOTE_TRANSPOSE_H
#define CENOTE_TRANSPOSE_H

#include "tile.h"

// W vectors, of which the i-th elements become vector i.
INLINE void transpose(V v[W]) {
#if W == 16
    V t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
#define PAIRS(op, a, b) _mm512_castpd_ps(_mm512_unpack##op##_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
    for (int i = 0; i < 16; i += 4) {
        v[i] = PAIRS(lo, t[i], t[i + 2]);
        v[i + 1] = PAIRS(hi, t[i], t[i + 2]);
        v[i + 2] = PAIRS(lo, t[i + 1], t[i + 3]);
        v[i + 3] = PAIRS(hi, t[i + 1], t[i + 3]);
    }
#undef PAIRS
    // v[4 g + c] holds columns c, c + 4, c + 8 and c + 12 of rows 4 g to 4 g + 3.
    for (int c = 0; c < 4; c++) {
        const V low = _mm512_shuffle_f32x4(v[c], v[4 + c], 0x88), high = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0x88);
        const V low2 = _mm512_shuffle_f32x4(v[c], v[4 + c], 0xdd), high2 = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0xdd);
        t[c] = _mm512_shuffle_f32x4(low, high, 0x88);
        t[8 + c] = _mm512_shuffle_f32x4(low, high, 0xdd);
        t[4 + c] = _mm512_shuffle_f32x4(low2, high2, 0x88);
        t[12 + c] = _mm512_shuffle_f32x4(low2, high2, 0xdd);
    }
    for (int i = 0; i < 16; i++) v[i] = t[i];
#else
    V t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int c = 0; c < 4; c++) {
        t[c] = _mm256_permute2f128_ps(v[c], v[4 + c], 0x20);
        t[4 + c] = _mm256_permute2f128_ps(v[c], v[4 + c], 0x31);
    }
    for (int i = 0; i < 8; i++) v[i] = t[i];
#endif
}

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
