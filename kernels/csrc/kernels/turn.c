// Rotary positions (Su et al. 2021): pairs of each head of queries or keys are turned by the angles of their row.

#include <math.h>

#include "../simd.h"

// Elements of a head, times `scale` and their weight where heads are normalised.
INLINE V element(const float *head, const float *weight, V scale, ptrdiff_t at, Mask some) {
    const V x = v_load_some(head + at, some);
    if (!weight) return x;
    return x * scale * v_load_some(weight + at, some);
}

INLINE void turn_head(float *head, const float *cos, const float *sin, const float *weight, float eps, ptrdiff_t size,
                      ptrdiff_t pairs) {
    V scale = v_all(1);
    if (weight) {
        V squares = v_all(0);
        for (ptrdiff_t i = 0; i < size; i += W) {
            const V x = v_load_some(head + i, mask_of(size - i));
            squares = v_fma(x, x, squares);
        }
        scale = v_all(1.0f / sqrtf(v_sum(squares) / (float)size + eps));
    }
    ptrdiff_t i = 0;
    for (; !weight && i + W <= pairs; i += W) {
        const V c = v_load(cos + i), s = v_load(sin + i), left = v_load(head + i), right = v_load(head + pairs + i);
        v_store(head + i, left * c - right * s);
        v_store(head + pairs + i, right * c + left * s);
    }
    for (; i < pairs; i += W) {
        const Mask some = mask_of(pairs - i);
        const V c = v_load_some(cos + i, some), s = v_load_some(sin + i, some);
        const V left = element(head, weight, scale, i, some), right = element(head, weight, scale, pairs + i, some);
        v_store_some(head + i, left * c - right * s, some);
        v_store_some(head + pairs + i, right * c + left * s, some);
    }
    for (i = 2 * pairs; weight && i < size; i += W) {
        const Mask some = mask_of(size - i);
        v_store_some(head + i, element(head, weight, scale, i, some), some);
    }
}

// In place: dimension `i` of each head is paired with `i + pairs`, those from `2 * pairs` on stay. Where `weight` is not
// null, each head is first divided by its root mean square and multiplied with it. Heads lie side by side, rows start
// `step` floats apart; cosines and sines `[num, pairs]` lie side by side.
KERNEL(turn)
(float *rows, const float *cos, const float *sin, const float *weight, float eps, ptrdiff_t num, ptrdiff_t heads,
 ptrdiff_t size, ptrdiff_t pairs, ptrdiff_t step) {
    for (ptrdiff_t row = 0; row < num; row++)
        for (ptrdiff_t head = 0; head < heads; head++)
            turn_head(rows + row * step + head * size, cos + row * pairs, sin + row * pairs, weight, eps, size, pairs);
}
