// Norms of rows. A row's result depends on that row alone.

#include <math.h>

#include "../kernels.h"

// Sums run in so many chains at once, since each addition waits for the one before.
#define CHAINS 4

INLINE V sum_of(const V chains[CHAINS]) { return (chains[0] + chains[1]) + (chains[2] + chains[3]); }

// The norm of one row `in + more` to `to`, and the sum itself to `sums`; `more` and `bias` may be null, without `more`
// there is no sum, and `sums` may be `in`, `more` or `to`. `centred`: a layer norm; else the root mean square divides.
// Returns what the row, less its mean, was multiplied with before the weight.
INLINE float normed(float *to, float *sums, const float *in, const float *more, const float *weight, const float *bias,
                   float eps, ptrdiff_t size, int centred) {
    const ptrdiff_t whole = size / (CHAINS * W) * (CHAINS * W);
    V totals[CHAINS], squares[CHAINS];
    for (int c = 0; c < CHAINS; c++) totals[c] = squares[c] = v_all(0);
    for (ptrdiff_t i = 0; (more || centred) && i < whole; i += CHAINS * W) {
        for (int c = 0; c < CHAINS; c++) {
            V x = v_load(in + i + c * W);
            if (more) {
                x = x + v_load(more + i + c * W);
                v_store(sums + i + c * W, x);
            }
            totals[c] = totals[c] + x;
        }
    }
    for (ptrdiff_t i = whole; (more || centred) && i < size; i += W) {
        const Mask some = mask_of(size - i);
        V x = v_load_some(in + i, some);
        if (more) {
            x = x + v_load_some(more + i, some);
            v_store_some(sums + i, x, some);
        }
        totals[0] = totals[0] + x;
    }
    const float *from = more ? sums : in;
    const V mean = v_all(centred ? v_sum(sum_of(totals)) / (float)size : 0);
    for (ptrdiff_t i = 0; i < whole; i += CHAINS * W) {
        for (int c = 0; c < CHAINS; c++) {
            const V x = v_load(from + i + c * W) - mean;
            squares[c] = v_fma(x, x, squares[c]);
        }
    }
    for (ptrdiff_t i = whole; i < size; i += W) {
        const Mask some = mask_of(size - i);
        const V x = v_only(v_load_some(from + i, some) - mean, some);
        squares[0] = v_fma(x, x, squares[0]);
    }
    const float factor = 1.0f / sqrtf(v_sum(sum_of(squares)) / (float)size + eps);
    const V scale = v_all(factor);
    ptrdiff_t i = 0;
    for (; i + W <= size; i += W) {
        const V x = (v_load(from + i) - mean) * scale, shift = bias ? v_load(bias + i) : v_all(0);
        v_store(to + i, v_fma(x, v_load(weight + i), shift));
    }
    if (i < size) {
        const Mask some = mask_of(size - i);
        const V x = (v_load_some(from + i, some) - mean) * scale, shift = bias ? v_load_some(bias + i, some) : v_all(0);
        v_store_some(to + i, v_fma(x, v_load_some(weight + i, some), shift), some);
    }
    return factor;
}

// Layer norm of `rows + added` (Ba et al. 2016), `added` and `bias` may be null. `out` may be `rows`.
// Rows start `rows_step` and `added_step` floats apart; those of `out` lie side by side.
KERNEL(add_norm)
(float *out, const float *rows, const float *added, const float *weight, const float *bias, float eps, ptrdiff_t num,
 ptrdiff_t size, ptrdiff_t rows_step, ptrdiff_t added_step) {
    for (ptrdiff_t row = 0; row < num; row++)
        normed(out + row * size, out + row * size, rows + row * rows_step, added ? added + row * added_step : NULL, weight,
               bias, eps, size, 1);
}

// What a layer that normalises first takes: `added` becomes `rows + added`, and `out` the norm of that, a layer norm or
// (`centred` 0) the one by the root mean square (Zhang and Sennrich 2019). `added` and `bias` may be null. All rows lie
// side by side but `rows`, which start `rows_step` floats apart.
KERNEL(sum_norm)
(float *out, float *added, const float *rows, const float *weight, const float *bias, float eps, ptrdiff_t num,
 ptrdiff_t size, ptrdiff_t rows_step, int centred) {
    for (ptrdiff_t row = 0; row < num; row++) {
        float *sums = added ? added + row * size : NULL;
        if (centred)
            normed(out + row * size, sums, rows + row * rows_step, sums, weight, bias, eps, size, 1);
        else
            normed(out + row * size, sums, rows + row * rows_step, sums, weight, bias, eps, size, 0);
    }
}

// The rows that a sum is made of.
INLINE void find_rows(const float *from[TABLES], const Table *tables, ptrdiff_t num_tables, ptrdiff_t row, ptrdiff_t size) {
    for (ptrdiff_t t = 0; t < num_tables; t++)
        from[t] = tables[t].rows + (tables[t].ids ? tables[t].ids[row] * size : 0);
}

// Layer norm of the sum of one row of each table, each `size` floats. `scales`, which may be null, gets what the norm
// multiplied each row with. Returns 0, or 1 where a table has no such row.
__attribute__((visibility("default"))) int JOINED(embed_norm, ISA)(
    float *out, const Table *tables, ptrdiff_t num_tables, const float *weight, const float *bias, float eps,
    float *scales, ptrdiff_t num, ptrdiff_t size) {
    for (ptrdiff_t t = 0; t < num_tables; t++)
        for (ptrdiff_t row = 0; tables[t].ids && row < num; row++)
            if (tables[t].ids[row] < 0 || tables[t].ids[row] >= tables[t].num) return 1;
    for (ptrdiff_t row = 0; row < num; row++) {
        const float *from[TABLES];
        find_rows(from, tables, num_tables, row, size);
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
        const float scale = normed(to, to, to, NULL, weight, bias, eps, size, 1);
        if (scales) scales[row] = scale;
    }
    return 0;
}

// Rows of `width` that are known of a product, `num` from row `first` on.
KERNEL(known_rows)(float *out, const Known *known, ptrdiff_t first, ptrdiff_t num, ptrdiff_t width) {
    for (ptrdiff_t row = first; row < first + num; row++, out += width) {
        const float *from[TABLES], *next[TABLES];
        find_rows(from, known->tables, known->num_tables, row, width);
        find_rows(next, known->tables, known->num_tables, row + 1 < first + num ? row + 1 : row, width);
        const V scale = v_all(known->scales[row]);
        for (ptrdiff_t i = 0; i < width; i += W) {
            const Mask some = mask_of(width - i);
            V sum = v_load_some(from[0] + i, some);
            // Those of the next row lie anywhere in memory, and are fetched meanwhile.
            __builtin_prefetch(next[0] + i);
            for (ptrdiff_t t = 1; t < known->num_tables; t++) sum = sum + v_load_some(from[t] + i, some);
            v_store_some(out + i, v_fma(sum, scale, v_load_some(known->bias + i, some)), some);
        }
    }
}
