// Products of 8-bit integers: unsigned codes of rows times signed codes in panels, with exact sums in 32 bits.
//
// Without VNNI two products are summed in 16 bits: there codes in panels stay within 63, as 2 * 255 * 63 < 2^15.

#ifndef CENOTE_INT8_H
#define CENOTE_INT8_H

#include "simd.h"

#include <math.h>
#include <string.h>

#ifdef __AVX512F__
#define ROWS 12
INLINE VI i_all(int32_t x) { return _mm512_set1_epi32(x); }
INLINE VI i_load(const void *from) { return _mm512_loadu_si512(from); }
INLINE VI i_minus(VI a, VI b) { return _mm512_sub_epi32(a, b); }
INLINE VI i_times(VI a, VI b) { return _mm512_mullo_epi32(a, b); }
INLINE VI i_max(VI a, VI b) { return _mm512_max_epi32(a, b); }
INLINE VI i_max_unsigned(VI a, VI b) { return _mm512_max_epu32(a, b); }
INLINE VI i_rounded(V v) { return _mm512_cvtps_epi32(v); }
INLINE VI i_plus(VI a, VI b) { return _mm512_add_epi32(a, b); }
INLINE V v_of(VI v) { return _mm512_cvtepi32_ps(v); }
INLINE VI i_and(VI a, VI b) { return _mm512_and_si512(a, b); }
INLINE VI i_or(VI a, VI b) { return _mm512_or_si512(a, b); }
INLINE VI i_bits(V v) { return _mm512_castps_si512(v); }
INLINE V v_bits(VI v) { return _mm512_castsi512_ps(v); }
INLINE VI i_shifted(VI v) { return _mm512_slli_epi32(v, 8); }
INLINE void i_store(void *to, VI v) { _mm512_storeu_si512(to, v); }
INLINE int32_t i_sum(VI v) { return _mm512_reduce_add_epi32(v); }
INLINE int32_t i_largest(VI v) { return _mm512_reduce_max_epi32(v); }
INLINE V v_either(V a, V b, Mask m) { return _mm512_mask_mov_ps(b, m, a); }
// The lowest byte of each; and those within 0 to 255, others cut to that.
INLINE void store_bytes(uint8_t *to, VI v) { _mm_storeu_si128((void *)to, _mm512_cvtepi32_epi8(v)); }
INLINE void store_codes(uint8_t *to, VI v) { _mm_storeu_si128((void *)to, _mm512_cvtusepi32_epi8(v)); }
// As the last for four vectors at once, with `zeros`, 16 bits each, added first.
INLINE void store_four_codes(uint8_t *to, VI a, VI b, VI c, VI d, VI zeros) {
    const VI ab = _mm512_add_epi16(_mm512_packs_epi32(a, b), zeros), cd = _mm512_add_epi16(_mm512_packs_epi32(c, d), zeros);
    const VI order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    i_store(to, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(ab, cd)));
}
// As instructions: compilers copy the sums around the intrinsic, or make the products of several rows at once and run out
// of registers.
INLINE VI i_dot(VI sums, VI codes, VI weights) {
#ifdef __AVX512VNNI__
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(weights));
    return sums;
#else
    const VI ones = _mm512_set1_epi16(1);
    VI pairs;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
            : "+v"(sums), "=&v"(pairs)
            : "v"(codes), "vm"(weights), "v"(ones));
    return sums;
#endif
}
#else
#define ROWS 6
INLINE VI i_all(int32_t x) { return _mm256_set1_epi32(x); }
INLINE VI i_load(const void *from) { return _mm256_loadu_si256(from); }
INLINE VI i_minus(VI a, VI b) { return _mm256_sub_epi32(a, b); }
INLINE VI i_times(VI a, VI b) { return _mm256_mullo_epi32(a, b); }
INLINE VI i_max(VI a, VI b) { return _mm256_max_epi32(a, b); }
INLINE VI i_max_unsigned(VI a, VI b) { return _mm256_max_epu32(a, b); }
INLINE VI i_rounded(V v) { return _mm256_cvtps_epi32(v); }
INLINE VI i_plus(VI a, VI b) { return _mm256_add_epi32(a, b); }
INLINE V v_of(VI v) { return _mm256_cvtepi32_ps(v); }
INLINE VI i_and(VI a, VI b) { return _mm256_and_si256(a, b); }
INLINE VI i_or(VI a, VI b) { return _mm256_or_si256(a, b); }
INLINE VI i_bits(V v) { return _mm256_castps_si256(v); }
INLINE V v_bits(VI v) { return _mm256_castsi256_ps(v); }
INLINE VI i_shifted(VI v) { return _mm256_slli_epi32(v, 8); }
INLINE void i_store(void *to, VI v) { _mm256_storeu_si256(to, v); }
INLINE int32_t i_sum(VI v) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 1)));
}
INLINE int32_t i_largest(VI v) {
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    four = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 1)));
}
INLINE V v_either(V a, V b, Mask m) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m)); }
INLINE void store_bytes(uint8_t *to, VI v) {
    const __m128i shorts = _mm_packus_epi32(
        _mm_and_si128(_mm256_castsi256_si128(v), _mm_set1_epi32(255)),
        _mm_and_si128(_mm256_extracti128_si256(v, 1), _mm_set1_epi32(255)));
    _mm_storel_epi64((void *)to, _mm_packus_epi16(shorts, shorts));
}
INLINE void store_codes(uint8_t *to, VI v) {
    const __m128i shorts = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((void *)to, _mm_packus_epi16(shorts, shorts));
}
INLINE void store_four_codes(uint8_t *to, VI a, VI b, VI c, VI d, VI zeros) {
    const VI ab = _mm256_add_epi16(_mm256_packs_epi32(a, b), zeros), cd = _mm256_add_epi16(_mm256_packs_epi32(c, d), zeros);
    const VI order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    i_store(to, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), order));
}
INLINE VI i_dot(VI sums, VI codes, VI weights) {
    const VI ones = _mm256_set1_epi16(1);
    VI pairs;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(sums), "=&x"(pairs)
            : "x"(codes), "xm"(weights), "x"(ones));
    return sums;
}
#endif

// Columns of a tile, and of a panel: for each 4 steps of the depth, the 4 codes of one column, then those of the next.
// So a tile reads its panel from end to end.
#define COLS (2 * W)
#define PANEL COLS

// Runs DO(n) for `num` rows, n being `num` as a constant.
#if ROWS == 12
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

// The largest code in a panel.
#ifdef __AVX512VNNI__
#define LARGEST 127
#else
#define LARGEST 63
#endif

// `sums[r][c] += codes[r] * panel`, for a number of rows that the compiler knows; rows of codes are `step` bytes apart,
// `depth` is a multiple of 4. Where it `fetches`, the panel that lies behind this one comes near meanwhile.
INLINE void i_tile(int num, VI sums[ROWS][2], const uint8_t *codes, ptrdiff_t step, const int8_t *panel, ptrdiff_t depth,
                   int fetches) {
    for (ptrdiff_t k = 0; k < depth; k += 4) {
        for (ptrdiff_t line = 0; fetches && line < 4 * PANEL; line += 64)
            __builtin_prefetch(panel + (depth + k) * PANEL + line);
        const VI left = i_load(panel + k * PANEL), right = i_load(panel + k * PANEL + 4 * W);
#pragma GCC unroll 16
        for (int r = 0; r < num; r++) {
            int32_t four;
            memcpy(&four, codes + r * step + k, 4);
            const VI x = i_all(four);
            sums[r][0] = i_dot(sums[r][0], x, left);
            sums[r][1] = i_dot(sums[r][1], x, right);
        }
    }
}

// Which of a panel's tiles fetches the panel behind it: they come from the third-level cache or from memory, which AVX2 cores
// are slow to foresee. Others do well to wait until their own panel has come.
INLINE int fetches_next(ptrdiff_t tile, ptrdiff_t count) { return tile == (W == 8 ? 0 : count - 1); }

// Where the columns from `col` on, a multiple of COLS, begin in panels of this depth.
INLINE const int8_t *panel_at(const int8_t *panels, ptrdiff_t col, ptrdiff_t depth) { return panels + col * depth; }

// The bits of |v|: as integers they are in the order of the numbers, infinity and NaN greatest.
INLINE VI i_size(V v) { return i_and(i_bits(v), i_all(0x7fffffff)); }

// Rows whose codes are held at once.
#define BLOCK 48

// Codes of rows, each padded to a multiple of 4, and 64 bytes of room behind them. A value of a row is about
// `scale * (code - zero)`.
typedef struct {
    uint8_t *codes;
    float scales[BLOCK];
    int32_t zeros[BLOCK];
} Codes;

// Numbered as in `layers/kernels.py` of Cenote.
enum { NONE, GELU, GELU_TANH, RELU, SILU, TANH, SIGMOID };

typedef struct {
    const int8_t *panels;
    const int32_t *sums;  // of the codes of each column
    const float *scales;
    const float *bias;
    ptrdiff_t depth, width;  // of the weight; both padded in `panels`, the width in the others too
    ptrdiff_t activation;
} Weight;

// At most BLOCK rows to codes; the same of their GELU, which takes their place; and `activation(codes * weight + bias)`.
void JOINED(int8_codes, ISA)(Codes *codes, const float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size);
void JOINED(int8_gelu_codes, ISA)(Codes *codes, float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size);
void JOINED(int8_times, ISA)(float *out, ptrdiff_t step, const Codes *codes, const Weight *weight, ptrdiff_t num);

INLINE ptrdiff_t padded_to(ptrdiff_t size, ptrdiff_t whole) { return (size + whole - 1) / whole * whole; }

#endif

