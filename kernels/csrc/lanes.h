// What lies across vectors: rows to columns, and one result of each vector in the lanes of one.

#ifndef CENOTE_LANES_H
#define CENOTE_LANES_H

#include "simd.h"

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

// Lane i is what OP makes of all lanes of `v[i]`: each step halves the vectors, where one by one each would be halved alone.
// The order is the same in all lanes, but not that of v_sum.
#if W == 16
#define ACROSS(name, T, OP, FROM, TO)                                                                \
    INLINE T name(const T v[W]) {                                                                    \
        __m512i a[4];                                                                                \
        for (int i = 0; i < 4; i++) {                                                                \
            __m512i two[2];                                                                          \
            for (int j = 0; j < 2; j++) {                                                            \
                const __m512i x = TO(v[4 * i + 2 * j]), y = TO(v[4 * i + 2 * j + 1]);                \
                two[j] = TO(OP(FROM(_mm512_unpacklo_epi32(x, y)), FROM(_mm512_unpackhi_epi32(x, y)))); \
            }                                                                                        \
            a[i] = TO(OP(FROM(_mm512_unpacklo_epi64(two[0], two[1])), FROM(_mm512_unpackhi_epi64(two[0], two[1])))); \
        }                                                                                            \
        for (int i = 0; i < 2; i++)                                                                  \
            a[i] = TO(OP(FROM(_mm512_shuffle_i32x4(a[2 * i], a[2 * i + 1], 0x88)),                   \
                         FROM(_mm512_shuffle_i32x4(a[2 * i], a[2 * i + 1], 0xdd))));                 \
        return OP(FROM(_mm512_shuffle_i32x4(a[0], a[1], 0x88)), FROM(_mm512_shuffle_i32x4(a[0], a[1], 0xdd))); \
    }
#define BITS_OF _mm512_castps_si512
#define V_OF_BITS _mm512_castsi512_ps
#else
#define ACROSS(name, T, OP, FROM, TO)                                                                \
    INLINE T name(const T v[W]) {                                                                    \
        __m256i a[2];                                                                                \
        for (int i = 0; i < 2; i++) {                                                                \
            __m256i two[2];                                                                          \
            for (int j = 0; j < 2; j++) {                                                            \
                const __m256i x = TO(v[4 * i + 2 * j]), y = TO(v[4 * i + 2 * j + 1]);                \
                two[j] = TO(OP(FROM(_mm256_unpacklo_epi32(x, y)), FROM(_mm256_unpackhi_epi32(x, y)))); \
            }                                                                                        \
            a[i] = TO(OP(FROM(_mm256_unpacklo_epi64(two[0], two[1])), FROM(_mm256_unpackhi_epi64(two[0], two[1])))); \
        }                                                                                            \
        return OP(FROM(_mm256_permute2x128_si256(a[0], a[1], 0x20)), FROM(_mm256_permute2x128_si256(a[0], a[1], 0x31))); \
    }
#define BITS_OF _mm256_castps_si256
#define V_OF_BITS _mm256_castsi256_ps
#endif

INLINE V v_plus(V a, V b) { return a + b; }

ACROSS(v_largest_of, V, v_max, V_OF_BITS, BITS_OF)
ACROSS(v_sum_of, V, v_plus, V_OF_BITS, BITS_OF)

#endif
