// Linear layers in 8-bit integers: codes of rows, with a scale and a zero of their own, times codes of a weight, with a
// scale per column. A row does not depend on the rows beside it.

#include "../functions.h"
#include "../int8.h"
#include "../kernels.h"
#include "../team.h"

// Products of rows and depth of which one tile of columns is enough work to be taken by itself.
#define CHUNK 8192

INLINE float f_of(int32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

// What turns the values of a row to codes, and back.
typedef struct {
    float inverse, scale;
    int32_t zero;
} Range;

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

// Of a row, whose activations take its place. The scale is NaN where they have NaN or infinity. As integers, bits are in the
// order of the numbers: signed those of 0 and above, NaN greatest; unsigned those below, away from 0.
INLINE Range range_of(float *row, ptrdiff_t size, int activation) {
    const ptrdiff_t whole = size / (2 * W) * (2 * W);
    VI low = i_bits(v_all(-0.0f)), low2 = low, high = i_all(0), high2 = high;
    for (ptrdiff_t i = 0; i < whole; i += 2 * W) {
        VI x = i_load(row + i), y = i_load(row + i + W);
        if (activation != NONE) {
            x = i_bits(activated(v_bits(x), activation)), y = i_bits(activated(v_bits(y), activation));
            i_store(row + i, x), i_store(row + i + W, y);
        }
        low = i_max_unsigned(low, x), high = i_max(high, x);
        low2 = i_max_unsigned(low2, y), high2 = i_max(high2, y);
    }
    for (ptrdiff_t i = whole; i < size; i += W) {
        VI x = i_bits(v_load_some(row + i, mask_of(size - i)));
        if (activation != NONE) {
            x = i_bits(activated(v_bits(x), activation));
            v_store_some(row + i, v_bits(x), mask_of(size - i));
        }
        low = i_max_unsigned(low, x), high = i_max(high, x);
    }
    const float least = -f_of(i_largest(i_size(v_bits(i_max_unsigned(low, low2)))));
    const float most = f_of(i_largest(i_max(high, high2)));
    // Not less than a number whose inverse is finite; a row of zeros has codes of zero.
    const float range = most - least > 1e-30f ? most - least : 1e-30f, inverse = 255.0f / range;
    return (Range){inverse, range / 255.0f + (most * 0.0f + least * 0.0f), (int32_t)rintf(-least * inverse)};
}

// Codes of one row, `padded` (a multiple of 4 and at least `size`) of them, and W - 1 bytes of room behind. A value is about
// `scale * (code - zero)`.
INLINE void row_codes(uint8_t *codes, Range range, const float *row, ptrdiff_t size, ptrdiff_t padded) {
    const VI zeros = i_all(range.zero), pairs = i_all((int32_t)((uint32_t)range.zero * 0x10001));
    const V by = v_all(range.inverse);
    ptrdiff_t i = 0;
    for (; i + 4 * W <= size; i += 4 * W) {
        VI four[4];
        for (int j = 0; j < 4; j++) four[j] = i_rounded(v_load(row + i + j * W) * by);
        store_four_codes(codes + i, four[0], four[1], four[2], four[3], pairs);
    }
    for (; i < size / W * W; i += W) store_codes(codes + i, i_plus(i_rounded(v_load(row + i) * by), zeros));
    for (; i < padded; i += W)
        store_codes(codes + i, i_plus(i_rounded(v_load_some(row + i, mask_of(size - i)) * by), zeros));
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
#define FETCHING(n) ROWS_OF(n, 1);
#define TILE(n) ROWS_OF(n, 0);
            if (fetches_next(n, count))
                FOR_ROWS(next - row, FETCHING)
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

INLINE void rows_codes(Codes *codes, float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size, int activation) {
    const ptrdiff_t padded = padded_to(size, 4);
    // The range of a row is found before the codes of the one above, as a chain of steps ends it.
    Range range = {0}, next = {0};
    for (ptrdiff_t row = 0; row <= num; row++, range = next) {
        if (row < num) {
            next = range_of(rows + row * step, size, activation);
            codes->scales[row] = next.scale, codes->zeros[row] = next.zero;
        }
        if (row > 0) row_codes(codes->codes + (row - 1) * padded, range, rows + (row - 1) * step, size, padded);
    }
}

void JOINED(int8_codes, ISA)(Codes *codes, const float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size) {
    rows_codes(codes, (float *)rows, step, num, size, NONE);
}

void JOINED(int8_gelu_codes, ISA)(Codes *codes, float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size) {
    rows_codes(codes, rows, step, num, size, GELU);
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
