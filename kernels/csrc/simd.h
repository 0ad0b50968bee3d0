// One vocabulary of float32 vectors for all instruction sets. Each source is compiled once per set, with ISA its name.
//
// V is a vector of W floats, and its arithmetic is that of C (+ - * /). A Mask says which of the first elements take
// part in a load or a store, so that nothing outside a row is touched. Where an operand of v_max or v_min is NaN, the
// second one is the result.

#ifndef CENOTE_SIMD_H
#define CENOTE_SIMD_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define JOINED_(name, isa) name##_##isa
#define JOINED(name, isa) JOINED_(name, isa)
// A function that Python calls: its name ends in that of the instruction set.
#define KERNEL(name) __attribute__((visibility("default"))) void JOINED(name, ISA)
#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__

#define W 16
typedef __m512 V;
typedef __m512i VI;
typedef __mmask16 Mask;

INLINE V v_load(const float *from) { return _mm512_loadu_ps(from); }
INLINE void v_store(float *to, V v) { _mm512_storeu_ps(to, v); }
INLINE V v_all(float x) { return _mm512_set1_ps(x); }
INLINE V v_fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
INLINE V v_max(V a, V b) { return _mm512_max_ps(a, b); }
INLINE V v_min(V a, V b) { return _mm512_min_ps(a, b); }
INLINE float v_sum(V v) { return _mm512_reduce_add_ps(v); }
INLINE float v_largest(V v) { return _mm512_reduce_max_ps(v); }
// The first `n` lanes, and those from `n` on, which is below W.
INLINE Mask mask_of(ptrdiff_t n) { return n >= W ? (Mask)0xffff : n <= 0 ? (Mask)0 : (Mask)((1u << n) - 1); }
INLINE Mask mask_from(ptrdiff_t n) { return (Mask)(0xffffu << n); }
INLINE V v_load_some(const float *from, Mask m) { return _mm512_maskz_loadu_ps(m, from); }
INLINE void v_store_some(float *to, V v, Mask m) { _mm512_mask_storeu_ps(to, m, v); }
INLINE V v_only(V v, Mask m) { return _mm512_maskz_mov_ps(m, v); }
INLINE V v_or(V v, Mask m, V other) { return _mm512_mask_mov_ps(other, m, v); }
INLINE V v_round(V v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// `v * 2^n`, `n` whole and between -126 and 127.
INLINE V v_scaled(V v, V n) { return _mm512_scalef_ps(v, n); }
// The same from the bits of `n + 0x1.8p+23`, for `v` around 1.
INLINE V v_scaled_by_bits(V v, V n) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(v), _mm512_slli_epi32(_mm512_castps_si512(n), 23)));
}
// Elements of `a` where `x < y`, else of `b`.
INLINE V v_where_less(V x, V y, V a, V b) { return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), a); }
INLINE V v_abs(V v) { return _mm512_abs_ps(v); }
// The smaller of `limit`, above 0, and |v|; `limit` where that is NaN.
INLINE V v_size_below(V v, V limit) { return _mm512_range_ps(v, limit, 0x0a); }
// For each element the one of `table`, which has W, that the last four bits of `at` name.
INLINE V v_picked(const float *table, V at) { return _mm512_permutexvar_ps(_mm512_castps_si512(at), v_load(table)); }
INLINE V v_gather(const float *from, const int32_t at[W]) { return _mm512_i32gather_ps(_mm512_loadu_si512(at), from, 4); }
// The lanes whose number has this bit.
INLINE Mask lanes_with(int bit) { return (Mask)(bit == 8 ? 0xff00 : bit == 4 ? 0xf0f0 : bit == 2 ? 0xcccc : 0xaaaa); }

#else

#define W 8
typedef __m256 V;
typedef __m256i VI;
typedef __m256i Mask;

INLINE V v_load(const float *from) { return _mm256_loadu_ps(from); }
INLINE void v_store(float *to, V v) { _mm256_storeu_ps(to, v); }
INLINE V v_all(float x) { return _mm256_set1_ps(x); }
INLINE V v_fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
INLINE V v_max(V a, V b) { return _mm256_max_ps(a, b); }
INLINE V v_min(V a, V b) { return _mm256_min_ps(a, b); }
INLINE float v_sum(V v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE float v_largest(V v) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
INLINE Mask mask_of(ptrdiff_t n) {
    int first = n >= W ? W : (int)n;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE Mask mask_from(ptrdiff_t n) {
    return _mm256_cmpgt_epi32(_mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8), _mm256_set1_epi32((int)n));
}
INLINE V v_load_some(const float *from, Mask m) { return _mm256_maskload_ps(from, m); }
INLINE void v_store_some(float *to, V v, Mask m) { _mm256_maskstore_ps(to, m, v); }
INLINE V v_only(V v, Mask m) { return _mm256_and_ps(v, _mm256_castsi256_ps(m)); }
INLINE V v_or(V v, Mask m, V other) { return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(m)); }
INLINE V v_round(V v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE V v_scaled(V v, V n) {
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(v, _mm256_castsi256_ps(power));
}
INLINE V v_scaled_by_bits(V v, V n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), _mm256_slli_epi32(_mm256_castps_si256(n), 23)));
}
INLINE V v_where_less(V x, V y, V a, V b) { return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ)); }
INLINE V v_abs(V v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
INLINE V v_gather(const float *from, const int32_t at[W]) {
    return _mm256_i32gather_ps(from, _mm256_loadu_si256((const __m256i *)at), 4);
}
INLINE Mask lanes_with(int bit) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), one = _mm256_set1_epi32(bit);
    return _mm256_cmpeq_epi32(_mm256_and_si256(lanes, one), one);
}

#endif
#endif
