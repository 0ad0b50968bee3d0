// A whole layer of a plain encoder: attention, then a feed-forward, each added to its input and then normalised.
//
// It is the kernels of the other sources one after another, so its results are theirs, bit for bit. Sequences go through
// the attention in groups and rows through the rest in blocks, so that what lies between two products stays in the
// second-level cache.

#include <stdlib.h>

#include "../kernels.h"

// What the wide rows of a block may take of the second-level cache, and what its number of rows is a multiple of: tiles
// of every instruction set.
#define BLOCK_BYTES (640 * 1024)
#define WHOLE 42
// Rows of a group, but for a longer sequence, and runs that it has at most.
#define GROUP 126
#define GROUP_RUNS 32

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

// How far the groups have come.
typedef struct {
    const Run *run, *end;
    int32_t seq;
} Place;

// The next sequences to runs of their own, with starts in rows of the whole call; returns the number of these runs.
static ptrdiff_t next_group(Place *at, Run group[GROUP_RUNS]) {
    ptrdiff_t num = 0, rows = 0;
    for (; at->run < at->end && num < GROUP_RUNS; num++) {
        Run run = *at->run;
        const int32_t left = run.num_seqs - at->seq, fit = (int32_t)(GROUP - rows) / (run.num_tokens > 0 ? run.num_tokens : 1);
        if (fit < 1 && num) break;
        run.query_start += at->seq * run.query_len;
        run.key_start += at->seq * run.num_tokens;
        run.num_seqs = fit < 1 ? 1 : fit < left ? fit : left;
        rows += run.num_seqs * run.num_tokens;
        at->seq += run.num_seqs;
        if (at->seq == at->run->num_seqs) at->run++, at->seq = 0;
        group[num] = run;
    }
    return num;
}

// What a call is given, and the room that it works in: queries of chosen rows, and the queries, keys and values of a group.
typedef struct {
    float *out;
    const float *rows, *chosen;
    float scale;
    int causal;
    ptrdiff_t window;
    const int64_t *positions;
    const struct Distances *distances;
    float *queries, *keys;
} Call;

// The attention of some runs, whose rows follow each other.
static int attend_group(const Layer *layer, const Call *call, Run group[], ptrdiff_t num) {
    const ptrdiff_t size = layer->size, key_step = call->chosen ? 2 * size : 3 * size;
    const ptrdiff_t first_query = group[0].query_start, first_key = group[0].key_start;
    const Run *last = group + num - 1;
    const ptrdiff_t num_rows = last->key_start + last->num_seqs * last->num_tokens - first_key;
    times(call->keys, call->rows + first_key * size, call->chosen ? &layer->key_value : &layer->qkv, num_rows, size, key_step, 0);
    for (ptrdiff_t i = 0; i < num; i++) group[i].query_start -= first_query, group[i].key_start -= first_key;
    const float *queries = call->chosen ? call->queries + first_query * size : call->keys;
    const float *keys = call->chosen ? call->keys : call->keys + size;
    return JOINED(attend, ISA)(call->out + first_query * size, queries, keys, keys + size, call->chosen ? size : key_step,
                               key_step, key_step, layer->heads, layer->heads, size / layer->heads, call->scale,
                               call->causal, call->window, call->positions ? call->positions + first_query : NULL,
                               (const int32_t *)group, num, call->distances);
}

// `rows` are `num` rows of the layer's size, those of the runs one after another. The layer is computed of all of them,
// and `chosen` is null, or of the `num_chosen` rows there, which are some of them. Returns 0, or 1 where there is no
// memory.
__attribute__((visibility("default"))) int JOINED(encoder_layer, ISA)(
    const Layer *layer, float *out, const float *rows, ptrdiff_t num, const float *chosen, ptrdiff_t num_chosen,
    float eps, float scale, int causal, ptrdiff_t window, const int64_t *positions, const int32_t *runs,
    ptrdiff_t num_runs, const struct Distances *distances) {
    const ptrdiff_t size = layer->size, wanted = chosen ? num_chosen : num, block = rows_of_block(layer);
    const Run *all = (const Run *)runs;
    ptrdiff_t most = GROUP;
    for (ptrdiff_t i = 0; i < num_runs; i++)
        if (all[i].num_tokens > most) most = all[i].num_tokens;
    const ptrdiff_t of_keys = most * 3 * size, of_queries = chosen ? wanted * size : 0;
    float *memory = NULL;
    if (posix_memalign((void **)&memory, 64, sizeof(float) * (size_t)(of_keys + of_queries + block * (size + layer->inner))))
        return 1;
    float *hidden = memory + of_keys + of_queries;
    const Call call = {out, rows, chosen, scale, causal, window, positions, distances, memory + of_keys, memory};
    if (chosen) times(call.queries, chosen, &layer->query, wanted, size, size, 0);
    Place place = {all, all + num_runs, 0};
    Run group[GROUP_RUNS];
    int failed = 0;
    for (ptrdiff_t of_group; !failed && (of_group = next_group(&place, group));)
        failed = attend_group(layer, &call, group, of_group);
    if (!failed) feed_forward(layer, out, chosen ? chosen : rows, wanted, eps, hidden, hidden + block * size);
    free(memory);
    return failed;
}

// Layers one after another, each of all rows that the one before gives. The last one's are in `out`; `spare` has as much
// room. Returns 0, or 1 where there is no memory.
__attribute__((visibility("default"))) int JOINED(encoder_layers, ISA)(
    const Layer *const *layers, ptrdiff_t num_layers, float *out, float *spare, const float *rows, ptrdiff_t num, float eps,
    float scale, int causal, ptrdiff_t window, const int32_t *runs, ptrdiff_t num_runs) {
    for (ptrdiff_t i = 0; i < num_layers; i++) {
        float *to = (num_layers - i) % 2 ? out : spare;
        if (JOINED(encoder_layer, ISA)(layers[i], to, rows, num, NULL, num, eps, scale, causal, window, NULL, runs, num_runs,
                                       NULL))
            return 1;
        rows = to;
    }
    return 0;
}
