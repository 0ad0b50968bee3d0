// A whole layer of a plain encoder: attention, then a feed-forward, each added to its input and then normalised.
//
// It is the kernels of the other sources one after another, so its results are theirs, bit for bit. What comes after
// the attention runs in blocks of rows, so that the wide rows inside the feed-forward stay in the second-level cache.

#include <stdlib.h>

#include "../kernels.h"

// What the wide rows of a block may take of the second-level cache, and what its number of rows is a multiple of: tiles
// of every instruction set.
#define BLOCK_BYTES (640 * 1024)
#define WHOLE 42

// A packed weight and its bias, or a norm's weight and its bias; each bias may be null.
typedef struct {
    const float *weight, *bias;
} Weight;

// As Python's `EncoderLayer` packs it: the products of all rows, and of some rows, of which `query` is one.
typedef struct {
    Weight qkv, query, key_value, out, up, down, attention_norm, norm;
    int64_t size, heads, inner, activation;
} Layer;

INLINE void times(float *out, const float *rows, const Weight *by, ptrdiff_t num, ptrdiff_t depth, ptrdiff_t width,
                  int activation) {
    JOINED(linear, ISA)(out, rows, by->weight, by->bias, num, depth, width, depth, width, activation);
}

INLINE void normed(float *out, const float *added, const Weight *by, float eps, ptrdiff_t num, ptrdiff_t size) {
    JOINED(add_norm, ISA)(out, out, added, by->weight, by->bias, eps, num, size, size, size);
}

INLINE ptrdiff_t rows_of_block(const Layer *layer) {
    const ptrdiff_t fit = BLOCK_BYTES / (ptrdiff_t)sizeof(float) / layer->inner / WHOLE * WHOLE;
    return fit > WHOLE ? fit : WHOLE;
}

// All that comes after the attention, whose rows are in `out`; `given` is what the layer was given in these rows, and
// `hidden` and `inner` have room for a block.
static void feed_forward(const Layer *layer, float *out, const float *given, ptrdiff_t num, float eps, float *hidden,
                         float *inner) {
    const ptrdiff_t size = layer->size, block = rows_of_block(layer);
    for (ptrdiff_t first = 0; first < num; first += block) {
        const ptrdiff_t count = num - first < block ? num - first : block;
        float *rows = out + first * size;
        times(hidden, rows, &layer->out, count, size, size, 0);
        normed(hidden, given + first * size, &layer->attention_norm, eps, count, size);
        times(inner, hidden, &layer->up, count, size, layer->inner, (int)layer->activation);
        times(rows, inner, &layer->down, count, layer->inner, size, 0);
        normed(rows, hidden, &layer->norm, eps, count, size);
    }
}

// `rows` are `num` rows of the layer's size. The layer is computed of all of them, and `chosen` is null, or of the
// `num_chosen` rows there, which are some of them. Returns 0, or 1 where there is no memory.
__attribute__((visibility("default"))) int JOINED(encoder_layer, ISA)(
    const Layer *layer, float *out, const float *rows, ptrdiff_t num, const float *chosen, ptrdiff_t num_chosen,
    float eps, float scale, int causal, ptrdiff_t window, const int64_t *positions, const int32_t *runs,
    ptrdiff_t num_runs, const struct Distances *distances) {
    const ptrdiff_t size = layer->size, head_size = size / layer->heads, wanted = chosen ? num_chosen : num;
    const ptrdiff_t key_step = chosen ? 2 * size : 3 * size, query_step = chosen ? size : 3 * size;
    const ptrdiff_t block = rows_of_block(layer), of_keys = num * key_step, of_queries = chosen ? wanted * size : 0;
    const ptrdiff_t needed = of_keys + of_queries + block * (size + layer->inner);
    float *memory = NULL;
    if (posix_memalign((void **)&memory, 64, sizeof(float) * (size_t)needed)) return 1;
    float *keys = memory, *queries = chosen ? keys + of_keys : keys, *hidden = memory + of_keys + of_queries;
    times(keys, rows, chosen ? &layer->key_value : &layer->qkv, num, size, key_step, 0);
    if (chosen)
        times(queries, chosen, &layer->query, wanted, size, size, 0);
    else
        keys += size;
    const int failed =
        JOINED(attend, ISA)(out, queries, keys, keys + size, query_step, key_step, key_step, layer->heads, layer->heads,
                            head_size, scale, causal, window, positions, runs, num_runs, distances);
    if (!failed) feed_forward(layer, out, chosen ? chosen : rows, wanted, eps, hidden, hidden + block * size);
    free(memory);
    return failed;
}
