// Norms of rows. A row's result depends on that row alone.

#include <math.h>

#include "../kernels.h"

// Sums run in so many chains at once, since each addition waits for the one before.
#define CHAINS 4

// Layer norm of `rows + added` (Ba et al. 2016), `added` and `bias` may be null. `out` may be `rows`.
// Rows start `rows_step` and `added_step` floats apart; those of `out` lie side by side.
KERNEL(add_norm)
(float *out, const float *rows, const float *added, const float *weight, const float *bias, float eps, ptrdiff_t num,
 ptrdiff_t size, ptrdiff_t rows_step, ptrdiff_t added_step) {
    const ptrdiff_t whole = size / (CHAINS * W) * (CHAINS * W);
    for (ptrdiff_t row = 0; row < num; row++) {
        const float *in = rows + row * rows_step, *more = added ? added + row * added_step : NULL;
        float *to = out + row * size;
        V sums[CHAINS], squares[CHAINS];
        for (int c = 0; c < CHAINS; c++) sums[c] = squares[c] = v_all(0);
        for (ptrdiff_t i = 0; i < whole; i += CHAINS * W) {
            for (int c = 0; c < CHAINS; c++) {
                V x = v_load(in + i + c * W);
                if (more) x = x + v_load(more + i + c * W);
                v_store(to + i + c * W, x);
                sums[c] = sums[c] + x;
            }
        }
        for (ptrdiff_t i = whole; i < size; i += W) {
            const Mask some = mask_of(size - i);
            V x = v_load_some(in + i, some);
            if (more) x = x + v_load_some(more + i, some);
            v_store_some(to + i, x, some);
            sums[0] = sums[0] + x;
        }
        const V mean = v_all(v_sum((sums[0] + sums[1]) + (sums[2] + sums[3])) / (float)size);
        for (ptrdiff_t i = 0; i < whole; i += CHAINS * W) {
            for (int c = 0; c < CHAINS; c++) {
                const V x = v_load(to + i + c * W) - mean;
                squares[c] = v_fma(x, x, squares[c]);
            }
        }
        for (ptrdiff_t i = whole; i < size; i += W) {
            const Mask some = mask_of(size - i);
            const V x = v_only(v_load_some(to + i, some) - mean, some);
            squares[0] = v_fma(x, x, squares[0]);
        }
        const float variance = v_sum((squares[0] + squares[1]) + (squares[2] + squares[3])) / (float)size;
        const V scale = v_all(1.0f / sqrtf(variance + eps));
        ptrdiff_t i = 0;
        for (; i + W <= size; i += W) {
            const V x = (v_load(to + i) - mean) * scale, shift = bias ? v_load(bias + i) : v_all(0);
            v_store(to + i, v_fma(x, v_load(weight + i), shift));
        }
        if (i < size) {
            const Mask some = mask_of(size - i);
            const V x = (v_load_some(to + i, some) - mean) * scale, shift = bias ? v_load_some(bias + i, some) : v_all(0);
            v_store_some(to + i, v_fma(x, v_load_some(weight + i, some), shift), some);
        }
    }
}

// Rows of up to TABLES tables are summed; a table without `ids` gives its first row each time.
#define TABLES 3

typedef struct {
    const float *rows;
    const int32_t *ids;
    int64_t num;
} Table;

// Layer norm of the sum of one row of each table, each `size` floats. Returns 0, or 1 where a table has no such row.
__attribute__((visibility("default"))) int JOINED(embed_norm, ISA)(
    float *out, const Table *tables, ptrdiff_t num_tables, const float *weight, const float *bias, float eps,
    ptrdiff_t num, ptrdiff_t size) {
    for (ptrdiff_t t = 0; t < num_tables; t++)
        for (ptrdiff_t row = 0; tables[t].ids && row < num; row++)
            if (tables[t].ids[row] < 0 || tables[t].ids[row] >= tables[t].num) return 1;
    for (ptrdiff_t row = 0; row < num; row++) {
        const float *from[TABLES];
        for (ptrdiff_t t = 0; t < num_tables; t++)
            from[t] = tables[t].rows + (tables[t].ids ? tables[t].ids[row] * size : 0);
        // Words lie anywhere in memory; that of the next row is fetched meanwhile.
        if (tables[0].ids && row + 1 < num)
            for (ptrdiff_t i = 0; i < size; i += 16) __builtin_prefetch(tables[0].rows + tables[0].ids[row + 1] * size + i);
        float *to = out + row * size;
        for (ptrdiff_t i = 0; i < size; i += W) {
            const Mask some = mask_of(size - i);
            V sum = v_load_some(from[0] + i, some);
            for (ptrdiff_t t = 1; t < num_tables; t++) sum = sum + v_load_some(from[t] + i, some);
            v_store_some(to + i, sum, some);
        }
        JOINED(add_norm, ISA)(to, to, NULL, weight, bias, eps, 1, size, size, size);
    }
    return 0;
}
