// Linear layers: `activation(rows * weight^T + bias)` on a weight packed in panels.

#include <stdlib.h>
#include <string.h>

#include "../functions.h"
#include "../kernels.h"
#include "../team.h"
#include "../tile.h"

// A block of rows stays in the second-level cache while all panels pass by. Rows of more than WHOLE columns come in parts
// of at most PART, so that a block has enough of them to be worth reading the panels again.
#define BLOCK_BYTES (384 * 1024)
#define WHOLE 1536
#define PART 768
// How much of a panel passes all rows of a block before more of it does, in steps of the depth: it stays in the
// first-level cache, as do the sums. The next part comes a little with each tile, so that the loop of the product has no
// instruction more than it needs. With fewer rows than FEW tiles a panel passes whole, fetched AHEAD steps
// before its use.
#if W == 16
#define PASS WHOLE
#define FEW PTRDIFF_MAX
#define MOST_SUMS ROWS
#define AHEAD 96
#else
#define PASS 192
#define FEW 3
#define MOST_SUMS (BLOCK_BYTES / 4 / PASS)
#define AHEAD 48
#endif
// A tile of fewer rows waits for its own sums, so the one before it leaves it as many.
#define LEAST_ROWS (W == 16 ? 6 : 3)
// So many floats apart, rows share one set of the first-level cache and drive each other out of it.
#define APART 1024

enum { NONE, GELU, GELU_TANH, RELU, SILU, TANH, SIGMOID };

// A weight `[width, depth]`, rows `step` floats apart, to panels of COLS outputs each; the last one is filled with zeros.
KERNEL(pack)(float *panels, const float *weight, ptrdiff_t width, ptrdiff_t depth, ptrdiff_t step) {
    for (ptrdiff_t first = 0; first < width; first += COLS)
        for (ptrdiff_t k = 0; k < depth; k++)
            for (ptrdiff_t c = 0; c < COLS; c++)
                *panels++ = first + c < width ? weight[(first + c) * step + k] : 0.0f;
}

#define EACH(FUNCTION) \
    for (int i = 0; i < count; i++) v[i] = FUNCTION(v[i]); \
    break;

INLINE void activate(int count, V v[], int activation) {
    switch (activation) {
        case GELU: EACH(v_gelu)
        case GELU_TANH: EACH(v_gelu_tanh)
        case RELU: EACH(v_relu)
        case SILU: EACH(v_silu)
        case TANH: EACH(v_tanh)
        case SIGMOID: EACH(v_sigmoid)
    }
}

// The activation of a finished tile, which is in the first-level cache; several vectors at once, since each is a chain.
static void activate_tile(float *out, ptrdiff_t step, ptrdiff_t num, ptrdiff_t cols, int activation) {
    V v[4];
    ptrdiff_t row = 0;
    for (; cols == COLS && row + 2 <= num; row += 2, out += 2 * step) {
        for (int i = 0; i < 4; i++) v[i] = v_load(out + i / 2 * step + i % 2 * W);
        activate(4, v, activation);
        for (int i = 0; i < 4; i++) v_store(out + i / 2 * step + i % 2 * W, v[i]);
    }
    for (; row < num; row++, out += step) {
        for (ptrdiff_t col = 0; col < cols; col += W) {
            v[0] = v_load_some(out + col, mask_of(cols - col));
            activate(1, v, activation);
            v_store_some(out + col, v[0], mask_of(cols - col));
        }
    }
}

// Of a finished tile the left vector of each row, activated, times the right one.
static void gate_tile(float *out, ptrdiff_t step, const float *sums, ptrdiff_t sums_step, ptrdiff_t num, ptrdiff_t cols,
                      int activation) {
    const Mask some = mask_of(cols);
    V v[4];
    ptrdiff_t row = 0;
    for (; row + 4 <= num; row += 4) {
        for (int i = 0; i < 4; i++) v[i] = v_load(sums + (row + i) * sums_step);
        activate(4, v, activation);
        for (int i = 0; i < 4; i++)
            v_store_some(out + (row + i) * step, v[i] * v_load(sums + (row + i) * sums_step + W), some);
    }
    for (; row < num; row++) {
        v[0] = v_load(sums + row * sums_step);
        activate(1, v, activation);
        v_store_some(out + row * step, v[0] * v_load(sums + row * sums_step + W), some);
    }
}

// What all tiles of a call have in common. `depth` is that of a part of the columns of the rows: sums of the parts before
// it lie in `out`. `gated_width` is that of the results of gates.
typedef struct {
    const float *bias;
    ptrdiff_t out_step, rows_step, depth, panel_step;
    int is_first, is_last, activation;
    ptrdiff_t gated_width;
} Call;

INLINE void tile(int num, int ahead, const Call *call, float *out, const float *bias, const float *rows,
                 const float *panel, ptrdiff_t cols) {
    const ptrdiff_t step = call->out_step;
    const Mask left = mask_of(cols), right = mask_of(cols - W);
    V sums[ROWS][2], first = v_all(0), second = v_all(0);
    if (call->is_first) {
        // What is stored at the end is fetched while the product runs.
        for (int r = 0; r < num; r++)
            for (ptrdiff_t c = 0; c < cols; c += 16) __builtin_prefetch(out + r * step + c, 1);
        if (bias) first = v_load_some(bias, left), second = v_load_some(bias + W, right);
        for (int r = 0; r < num; r++) sums[r][0] = first, sums[r][1] = second;
    } else {
        // The tile below is fetched while this one runs.
        for (int r = 0; W == 16 && r < num; r++)
            for (ptrdiff_t c = 0; c < cols; c += 16) __builtin_prefetch(out + (ROWS + r) * step + c, 1);
        for (int r = 0; r < num; r++) {
            sums[r][0] = v_load_some(out + r * step, left);
            sums[r][1] = v_load_some(out + r * step + W, right);
        }
    }
    multiply(num, ahead, sums, rows, call->rows_step, panel, call->depth);
    for (int r = 0; r < num; r++) {
        float *to = out + r * step;
        if (cols == COLS) {
            v_store(to, sums[r][0]);
            v_store(to + W, sums[r][1]);
        } else {
            v_store_some(to, sums[r][0], left);
            v_store_some(to + W, sums[r][1], right);
        }
    }
}

// Some rows times all panels. Where `out` is null, no sums are left beside those of a panel.
typedef struct {
    const Call *call;
    float *out, *gated;
    const float *rows, *panels;
    ptrdiff_t num, width;
} Block;

// How many of the rows that are left make the next tile. The first tiles are full, as they wait for the panel.
INLINE ptrdiff_t rows_of_tile(ptrdiff_t left) {
    return least(left, left > ROWS && left < ROWS + LEAST_ROWS ? left - LEAST_ROWS : ROWS);
}

// Rows times a part of a panel, while `next`, as much of it, is fetched, if it is not null. Not inlined, as else the
// compiler spills sums.
static __attribute__((noinline)) void one_part(const Block *block, const Call *call, ptrdiff_t col, float *out,
                                               const float *rows, const float *panel, const float *next) {
    const ptrdiff_t cols = least(COLS, block->width - col), tiles = (block->num + ROWS - 1) / ROWS;
    const ptrdiff_t lines = (call->depth * COLS / 16 + tiles - 1) / tiles;
    const ptrdiff_t further = block->out || !call->is_first || !call->is_last ? call->out_step : 0;
    const float *bias = call->bias ? call->bias + col : NULL;
    for (ptrdiff_t row = 0; row < block->num;) {
        const ptrdiff_t count = rows_of_tile(block->num - row);
#define FETCHED(n) tile(n, AHEAD, call, out, bias, rows, panel, cols);
#define CACHED(n) tile(n, 0, call, out, bias, rows, panel, cols);
        if (!next) {
            FOR_ROWS(count, FETCHED)
        } else {
            for (ptrdiff_t line = 0; line < lines; line++, next += 16) __builtin_prefetch(next);
            FOR_ROWS(count, CACHED)
        }
        if (call->is_last && block->gated)
            gate_tile(block->gated + row * call->gated_width + col / 2, call->gated_width, out, call->out_step, count,
                      call->gated_width - col / 2, call->activation);
        else if (call->is_last && call->activation != NONE)
            activate_tile(out, call->out_step, count, cols, call->activation);
        row += count, out += count * further, rows += count * call->rows_step;
    }
}

static void one_panel(const void *what, ptrdiff_t panel, ptrdiff_t member) {
    (void)member;
    const Block *block = what;
    const Call *call = block->call;
    const ptrdiff_t col = panel * COLS, depth = call->depth;
    const int few = (block->num - 1) / ROWS < FEW - 1;
    const ptrdiff_t passes = few ? 1 : (depth + PASS - 1) / PASS, pass = whole((depth + passes - 1) / passes, 8);
    const float *values = block->panels + col * call->panel_step;
    float sums[MOST_SUMS * COLS];
    for (ptrdiff_t first = 0; first < depth; first += pass) {
        Call part = *call;
        part.depth = least(pass, depth - first);
        part.is_first &= first == 0;
        part.is_last &= first + pass >= depth;
        const float *from = values + first * COLS, *next = from + (first + pass < depth ? pass : call->panel_step - first) * COLS;
        one_part(block, &part, col, block->out ? block->out + col : sums, block->rows + first, from, few ? NULL : next);
    }
}

// The parts that a depth comes in.
INLINE ptrdiff_t parts_of(ptrdiff_t depth) { return depth > WHOLE ? (depth + PART - 1) / PART : 1; }

// All rows times all panels; results of gates come to `gated`, if it is not null.
static void multiply_all(float *out, float *gated, const float *rows, const float *panels, const float *bias, ptrdiff_t num,
                         ptrdiff_t depth, ptrdiff_t panel_step, ptrdiff_t width, ptrdiff_t rows_step, ptrdiff_t out_step,
                         ptrdiff_t gated_width, int activation) {
    const ptrdiff_t parts = parts_of(depth), part = (depth + parts - 1) / parts;
    // Rows of parts are copied side by side, a line more than whole lines apart, so that they lie in different sets of
    // the first-level cache. Without memory for that the result is the same, later.
    const ptrdiff_t padded = (part + 31) / 32 * 32 + 16;
    ptrdiff_t size = BLOCK_BYTES / (ptrdiff_t)sizeof(float) / padded / ROWS * ROWS;
    if (size < ROWS) size = ROWS;
    const int apart = parts > 1 || rows_step % APART == 0;
    float *copy = apart && num > 1 ? malloc(sizeof(float) * (size_t)(least(size, num) * padded)) : NULL;
    for (ptrdiff_t first = 0; first == 0 || first < depth; first += part) {
        Call call = {bias, out_step, copy ? padded : rows_step, least(part, depth - first), panel_step,
                     first == 0, first + part >= depth, activation, gated_width};
        for (ptrdiff_t row = 0; row < num; row += size) {
            const ptrdiff_t count = least(size, num - row);
            const float *from = rows + row * rows_step + first;
            for (ptrdiff_t r = 0; copy && r < count; r++)
                memcpy(copy + r * padded, from + r * rows_step, sizeof(float) * (size_t)call.depth);
            const Block block = {&call, out ? out + row * out_step : NULL, gated ? gated + row * gated_width : NULL,
                                 copy ? copy : from, panels + first * COLS, count, width};
            spread(one_panel, &block, (width + COLS - 1) / COLS);
        }
    }
    free(copy);
}

// `bias` may be null. Rows start `rows_step` and `out_step` floats apart.
KERNEL(linear)
(float *out, const float *rows, const float *panels, const float *bias, ptrdiff_t num, ptrdiff_t depth, ptrdiff_t width,
 ptrdiff_t rows_step, ptrdiff_t out_step, int activation) {
    multiply_all(out, NULL, rows, panels, bias, num, depth, depth, width, rows_step, out_step, 0, activation);
}

// The same by `depth` columns of a weight that has `whole_depth`; its panels begin with the first of these columns.
void JOINED(linear_part, ISA)(float *out, const float *rows, const float *panels, const float *bias, ptrdiff_t num,
                              ptrdiff_t depth, ptrdiff_t whole_depth, ptrdiff_t width, ptrdiff_t rows_step,
                              ptrdiff_t out_step) {
    multiply_all(out, NULL, rows, panels, bias, num, depth, whole_depth, width, rows_step, out_step, 0, NONE);
}

// The gate of a feed-forward (Shazeer 2020), `activation(rows * gate^T) * (rows * up^T)`, `[num, width]` side by side.
// Panels, and `bias` if it is not null, hold W columns of the gate and then those of the other, filled with zeros. Not 0
// where there is no memory for sums between the parts of the depth.
__attribute__((visibility("default"))) int JOINED(gated_linear, ISA)(
    float *out, const float *rows, const float *panels, const float *bias, ptrdiff_t num, ptrdiff_t depth, ptrdiff_t width,
    ptrdiff_t rows_step, int activation) {
    const ptrdiff_t both = (width + W - 1) / W * COLS;
    float *sums = NULL;
    if (parts_of(depth) > 1 && !(sums = malloc(sizeof(float) * (size_t)(num * both + 1)))) return 1;
    multiply_all(sums, out, rows, panels, bias, num, depth, depth, both, rows_step, sums ? both : COLS, width, activation);
    free(sums);
    return 0;
}
