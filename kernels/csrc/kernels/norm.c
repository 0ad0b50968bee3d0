// Norms of rows. A row's result depends on that row alone.

#include <math.h>

#include "../simd.h"

// Layer norm of `rows + added` (Ba et al. 2016), `added` and `bias` may be null. `out` may be `rows`.
// Rows start `rows_step` and `added_step` floats apart; those of `out` lie side by side.
KERNEL(add_norm)
(float *out, const float *rows, const float *added, const float *weight, const float *bias, float eps, ptrdiff_t num,
 ptrdiff_t size, ptrdiff_t rows_step, ptrdiff_t added_step) {
    const ptrdiff_t whole = size / W * W;
    const Mask rest = mask_of(size - whole);
    for (ptrdiff_t row = 0; row < num; row++) {
        const float *in = rows + row * rows_step, *more = added ? added + row * added_step : NULL;
        float *to = out + row * size;
        V sum = v_all(0), squares = v_all(0);
        for (ptrdiff_t i = 0; i < whole; i += W) {
            V x = v_load(in + i);
            if (more) x = x + v_load(more + i);
            v_store(to + i, x);
            sum = sum + x;
        }
        if (whole < size) {
            V x = v_load_some(in + whole, rest);
            if (more) x = x + v_load_some(more + whole, rest);
            v_store_some(to + whole, x, rest);
            sum = sum + x;
        }
        const V mean = v_all(v_sum(sum) / (float)size);
        for (ptrdiff_t i = 0; i < whole; i += W) {
            V x = v_load(to + i) - mean;
            squares = v_fma(x, x, squares);
        }
        if (whole < size) {
            V x = v_only(v_load_some(to + whole, rest) - mean, rest);
            squares = v_fma(x, x, squares);
        }
        const V scale = v_all(1.0f / sqrtf(v_sum(squares) / (float)size + eps));
        for (ptrdiff_t i = 0; i < size; i += W) {
            const Mask some = mask_of(size - i);
            V x = (v_load_some(to + i, some) - mean) * scale;
            V shift = bias ? v_load_some(bias + i, some) : v_all(0);
            v_store_some(to + i, v_fma(x, v_load_some(weight + i, some), shift), some);
        }
    }
}
