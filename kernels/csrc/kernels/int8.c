// Linear layers in 8-bit integers: codes of rows, with a scale and a zero of their own, times codes of a weight, with a
// scale per column. A row does not depend on the rows beside it.

#include "../functions.h"
#include "../int8.h"
#include "../kernels.h"
#include "../team.h"

// Products of rows and depth of which one tile of columns is enough work to be taken by itself.
#define CHUNK 8192

// Codes of one row, `padded` (a multiple of 4 and at least `size`) of them, and W - 1 bytes of room behind; returns the
// scale, which is NaN where the row has NaN or infinity. A value is about `scale * (code - zero)`.
INLINE float row_codes(uint8_t *codes, int32_t *zero, const float *row, ptrdiff_t size, ptrdiff_t padded) {
    const ptrdiff_t whole = size / (2 * W) * (2 * W);
    V low = v_all(0), high = v_all(0), low2 = v_all(0), high2 = v_all(0);
    VI most = i_all(0), most2 = i_all(0);
    for (ptrdiff_t i = 0; i < whole; i += 2 * W) {
        const V x = v_load(row + i), y = v_load(row + i + W);
        low = v_min(low, x), high = v_max(high, x), most = i_max(most, i_size(x));
        low2 = v_min(low2, y), high2 = v_max(high2, y), most2 = i_max(most2, i_size(y));
    }
    for (ptrdiff_t i = whole; i < size; i += W) {
        const V x = v_load_some(row + i, mask_of(size - i));
        low = v_min(low, x), high = v_max(high, x), most = i_max(most, i_size(x));
    }
    const float least = -v_largest(v_all(0) - v_min(low, low2));
    // Not less than a number whose inverse is finite; a row of zeros has codes of zero.
    const float range = fmaxf(v_largest(v_max(high, high2)) - least, 1e-30f);
    const float inverse = 255.0f / range;
    *zero = (int32_t)rintf(-least * inverse);
    const VI zeros = i_all(*zero);
    const V by = v_all(inverse);
    ptrdiff_t i = 0;
    for (; i < size / W * W; i += W) store_codes(codes + i, i_plus(i_rounded(v_load(row + i) * by), zeros));
    for (; i < padded; i += W)
        store_codes(codes + i, i_plus(i_rounded(v_load_some(row + i, mask_of(size - i)) * by), zeros));
    const int32_t bits = i_largest(i_max(most, most2));
    float largest;
    memcpy(&largest, &bits, 4);
    return range / 255.0f + largest * 0.0f;
}

// Numbered as in `layers/kernels.py` of Cenote.
enum { NONE, GELU, GELU_TANH, RELU, SILU, TANH, SIGMOID };

INLINE V activated(V x, int activation) {
    switch (activation) {
        case GELU: return v_gelu_for_codes(x);
        case GELU_TANH: return v_gelu_tanh(x);
        case RELU: return v_relu(x);
        case SILU: return v_silu(x);
        case TANH: return v_tanh(x);
        case SIGMOID: return v_sigmoid(x);
        default: return x;
    }
}

// One tile: `num` rows of codes times COLS columns from `col` on.
INLINE void tile(int num, float *out, ptrdiff_t step, const uint8_t *codes, const float *scales, const int32_t *zeros,
                 const Weight *weight, ptrdiff_t col, int activation, int fetches) {
    const ptrdiff_t depth = padded_to(weight->depth, 4);
    const VI left_sum = i_load(weight->sums + col), right_sum = i_load(weight->sums + col + W);
    VI sums[ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < num; r++) sums[r][0] = i_all(0), sums[r][1] = i_all(0);
    i_tile(num, sums, codes, depth, panel_at(weight->panels, col, depth), depth, fetches);
    const V left_scale = v_load(weight->scales + col), right_scale = v_load(weight->scales + col + W);
    const V left_bias = v_load(weight->bias + col), right_bias = v_load(weight->bias + col + W);
    const ptrdiff_t wanted = weight->width - col;
#pragma GCC unroll 16
    for (int r = 0; r < num; r++) {
        const V scale = v_all(scales[r]);
        const VI zero = i_all(zeros[r]);
        V a = v_of(i_minus(sums[r][0], i_times(zero, left_sum))) * scale;
        V b = v_of(i_minus(sums[r][1], i_times(zero, right_sum))) * scale;
        a = activated(v_fma(a, left_scale, left_bias), activation);
        b = activated(v_fma(b, right_scale, right_bias), activation);
        float *to = out + r * step + col;
        if (wanted >= COLS) {
            v_store(to, a), v_store(to + W, b);
        } else {
            v_store_some(to, a, mask_of(wanted));
            if (wanted > W) v_store_some(to + W, b, mask_of(wanted - W));
        }
    }
}

// The product of a block of rows, in chunks of columns.
typedef struct {
    float *out;
    ptrdiff_t step, num, cols;  // of all chunks but the last
    const Codes *codes;
    const Weight *weight;
} Block;

// Tiles share the rows evenly, as one of few rows waits for its own sums.
INLINE void columns(const Block *all, ptrdiff_t chunk, int activation) {
    const Codes *codes = all->codes;
    const Weight *weight = all->weight;
    const ptrdiff_t depth = padded_to(weight->depth, 4), count = (all->num + ROWS - 1) / ROWS;
    const ptrdiff_t end = (chunk + 1) * all->cols < weight->width ? (chunk + 1) * all->cols : weight->width;
    for (ptrdiff_t col = chunk * all->cols; col < end; col += COLS)
        for (ptrdiff_t n = 0, row = 0; n < count; n++) {
            const ptrdiff_t next = all->num * (n + 1) / count;
            float *to = all->out + row * all->step;
            const uint8_t *from = codes->codes + row * depth;
#define ROWS_OF(n, fetches) \
    tile(n, to, all->step, from, codes->scales + row, codes->zeros + row, weight, col, activation, fetches)
#define FIRST(n) ROWS_OF(n, 1);
#define TILE(n) ROWS_OF(n, 0);
            if (FETCHES && !row)
                FOR_ROWS(next - row, FIRST)
            else
                FOR_ROWS(next - row, TILE)
            row = next;
        }
}

// Each in a function of its own, or the compiler runs out of registers for the sums.
#define COLUMNS_OF(name, activation)                                         \
    static void name(const void *what, ptrdiff_t chunk, ptrdiff_t member) {  \
        (void)member;                                                        \
        const Block *all = what;                                             \
        columns(all, chunk, activation);                                     \
    }
COLUMNS_OF(plain_columns, NONE)
COLUMNS_OF(gelu_columns, GELU)
COLUMNS_OF(other_columns, all->weight->activation)

void JOINED(int8_codes, ISA)(Codes *codes, const float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size) {
    const ptrdiff_t padded = padded_to(size, 4);
    for (ptrdiff_t row = 0; row < num; row++)
        codes->scales[row] = row_codes(codes->codes + row * padded, codes->zeros + row, rows + row * step, size, padded);
}

void JOINED(int8_times, ISA)(float *out, ptrdiff_t step, const Codes *codes, const Weight *weight, ptrdiff_t num) {
    // Enough to be worth taking.
    const Block all = {out, step, num, num * weight->depth < CHUNK ? 2 * COLS : COLS, codes, weight};
    const ptrdiff_t chunks = (weight->width + all.cols - 1) / all.cols;
    switch (weight->activation) {
        case GELU: spread(gelu_columns, &all, chunks); break;
        case NONE: spread(plain_columns, &all, chunks); break;
        default: spread(other_columns, &all, chunks);
    }
}

// `activation(rows * weight + bias)`. `room` is that of the codes of BLOCK rows.
KERNEL(int8_linear)
(float *out, uint8_t *room, const float *rows, const int8_t *panels, const int32_t *sums, const float *weight_scales,
 const float *bias, ptrdiff_t num, ptrdiff_t depth, ptrdiff_t width, ptrdiff_t rows_step, int activation) {
    const Weight weight = {panels, sums, weight_scales, bias, depth, width, activation};
    Codes codes = {.codes = room};
    for (ptrdiff_t first = 0; first < num; first += BLOCK) {
        const ptrdiff_t some = num - first < BLOCK ? num - first : BLOCK;
        JOINED(int8_codes, ISA)(&codes, rows + first * rows_step, rows_step, some, depth);
        JOINED(int8_times, ISA)(out + first * width, width, &codes, &weight, some);
    }
}
