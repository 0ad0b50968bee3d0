// A whole layer of a plain encoder: attention, then a feed-forward, each added to its input and then normalised.
//
// It is the kernels of the other sources one after another, so its results are theirs, bit for bit. Sequences go through
// the attention in groups and rows through the rest in blocks, so that what lies between two products stays in the
// second-level cache.

#include <stdlib.h>

#include "../kernels.h"
#include "../team.h"
#include "../tile.h"

// What the wide rows of a block may take of the second-level cache, and what its number of rows is a multiple of: tiles
// of every instruction set.
#define BLOCK_BYTES (640 * 1024)
#define WHOLE 42
// Rows of a group, but for a longer sequence, and runs that it has at most.
#define GROUP 126
#define GROUP_RUNS 32
// With fewer keys in a sequence it takes less to make them.
#define FEWEST 4
// Columns of the sums that values are made of there.
#define DEPTH 64

// A packed weight and its bias, or a norm's weight and its bias; each bias may be null.
typedef struct {
    const float *weight, *bias;
} Weight;

// As Python's `EncoderLayer` packs it: the products of all rows, and of some rows, of which `query` is one; `turned_key` is
// the weight of keys transposed, or null where keys are always made.
typedef struct {
    Weight qkv, query, key_value, out, up, down, attention_norm, norm;
    int64_t size, heads, inner, activation;
    const float *turned_key;
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

// What a call is given, and the room that it works in: queries of chosen rows, and the queries, keys and values of a group.
typedef struct {
    float *out;
    const float *rows, *chosen;
    float scale;
    int causal;
    ptrdiff_t window;
    const int64_t *positions;
    const struct Distances *distances;
    const Known *known;  // what the product of all rows gives, or null
    float *queries, *keys;
} Call;

// Whether keys and values need not be made for sequences of which one row is read: see `attend_by_rows`.
static int is_alone(const Layer *layer, const Call *call, const Run *run) {
    return call->chosen && layer->turned_key && !call->causal && call->window < 0 && !call->distances &&
           run->query_len == 1 && run->key_len >= FEWEST;
}

// The next sequences to runs of their own, with starts in rows of the whole call; returns the number of these runs.
static ptrdiff_t next_group(const Layer *layer, const Call *call, Place *at, Run group[GROUP_RUNS]) {
    ptrdiff_t num = 0, rows = 0;
    for (; at->run < at->end && num < GROUP_RUNS && !is_alone(layer, call, at->run); num++) {
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

// The attention of some runs, whose rows follow each other.
static int attend_group(const Layer *layer, const Call *call, Run group[], ptrdiff_t num) {
    const ptrdiff_t size = layer->size, key_step = call->chosen ? 2 * size : 3 * size;
    const ptrdiff_t first_query = group[0].query_start, first_key = group[0].key_start;
    const Run *last = group + num - 1;
    const ptrdiff_t num_rows = last->key_start + last->num_seqs * last->num_tokens - first_key;
    const float *rows = call->rows + first_key * size;
    if (call->known)
        JOINED(known_rows, ISA)(call->keys, call->known, first_key, num_rows, key_step);
    else
        times(call->keys, rows, call->chosen ? &layer->key_value : &layer->qkv, num_rows, size, key_step, 0);
    for (ptrdiff_t i = 0; i < num; i++) group[i].query_start -= first_query, group[i].key_start -= first_key;
    const float *queries = call->chosen ? call->queries + first_query * size : call->keys;
    const float *keys = call->chosen ? call->keys : call->keys + size;
    return JOINED(attend, ISA)(call->out + first_query * size, queries, keys, keys + size, call->chosen ? size : key_step,
                               key_step, key_step, layer->heads, layer->heads, size / layer->heads, call->scale,
                               call->causal, call->window, call->positions ? call->positions + first_query : NULL,
                               (const int32_t *)group, num, call->distances);
}

// Sequences of which one row is read: their number, the first one's row among the chosen, and what each head of each has
// in place of a query, and then of a sum of values.
typedef struct {
    const Layer *layer;
    const Call *call;
    ptrdiff_t num, first;
    float *rows;
} Alone;

static void turn_head(const void *what, ptrdiff_t head, ptrdiff_t member) {
    (void)member;
    const Alone *alone = what;
    const Layer *layer = alone->layer;
    const ptrdiff_t size = layer->size, head_size = size / layer->heads;
    const float *queries = alone->call->queries + alone->first * size + head * head_size;
    JOINED(linear_part, ISA)(alone->rows + head * size, queries, layer->turned_key + head * head_size * COLS, NULL,
                             alone->num, head_size, size, size, size, layer->heads * size);
}

// In sums of DEPTH each, as there is no more than one row in which their rounding could even out.
static void values_of_head(const void *what, ptrdiff_t head, ptrdiff_t member) {
    (void)member;
    const Alone *alone = what;
    const Layer *layer = alone->layer;
    const ptrdiff_t size = layer->size, head_size = size / layer->heads, col = head * head_size;
    const float *values = layer->key_value.weight + (size + col) * size, *bias = layer->key_value.bias;
    const float *rows = alone->rows + head * size;
    float *out = alone->call->out + alone->first * size + col, *more = alone->call->queries + alone->first * size + col;
    for (ptrdiff_t k = 0; k < size; k += DEPTH) {
        JOINED(linear_part, ISA)(k ? more : out, rows + k, values + k * COLS, k || !bias ? NULL : bias + size + col, alone->num,
                                 least(DEPTH, size - k), size, head_size, layer->heads * size, size);
        for (ptrdiff_t row = 0; k && row < alone->num; row++)
            for (ptrdiff_t i = row * size; i < row * size + head_size; i++) out[i] += more[i];
    }
}

// The attention of the next sequences of which one row is read, without their keys and values. The score of a key is
// `query . (W row)`, but for a summand that all keys share, which is `(W^T query) . row`; and the sum of values is W times
// the sum of rows. So each head's query is turned into a row, all of these see the rows that the layer is given, and the
// values are made of what each head has seen.
static int attend_by_rows(const Layer *layer, const Call *call, Place *at) {
    const ptrdiff_t size = layer->size, heads = layer->heads, fit = 3 * GROUP / heads > 1 ? 3 * GROUP / heads : 1;
    Alone alone = {layer, call, 0, at->run->query_start + at->seq, call->keys};
    Run runs[GROUP_RUNS];
    for (; at->run < at->end && alone.num < least(GROUP_RUNS, fit) && is_alone(layer, call, at->run); alone.num++) {
        const Run *run = at->run;
        runs[alone.num] = (Run){(int32_t)(alone.num * heads), run->key_start + at->seq * run->num_tokens, 1,
                                (int32_t)heads, run->key_len, run->num_tokens};
        if (++at->seq == run->num_seqs) at->run++, at->seq = 0;
    }
    spread(turn_head, &alone, heads);
    if (JOINED(attend, ISA)(call->keys, call->keys, call->rows, call->rows, size, size, size, 1, 1, size, call->scale, 0, -1,
                            NULL, (const int32_t *)runs, alone.num, NULL))
        return 1;
    spread(values_of_head, &alone, heads);
    return 0;
}

// The layer, and what is known of its first product where `chosen` is null.
static int one_layer(const Layer *layer, float *out, const float *rows, ptrdiff_t num, const float *chosen,
                     ptrdiff_t num_chosen, float eps, float scale, int causal, ptrdiff_t window, const int64_t *positions,
                     const int32_t *runs, ptrdiff_t num_runs, const struct Distances *distances, const Known *known) {
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
    const Call call = {out, rows, chosen, scale, causal, window, positions, distances, known, memory + of_keys, memory};
    if (chosen) times(call.queries, chosen, &layer->query, wanted, size, size, 0);
    Place place = {all, all + num_runs, 0};
    Run group[GROUP_RUNS];
    int failed = 0;
    while (!failed && place.run < place.end)
        failed = is_alone(layer, &call, place.run)
                     ? attend_by_rows(layer, &call, &place)
                     : attend_group(layer, &call, group, next_group(layer, &call, &place, group));
    if (!failed) feed_forward(layer, out, chosen ? chosen : rows, wanted, eps, hidden, hidden + block * size);
    free(memory);
    return failed;
}

// `rows` are `num` rows of the layer's size, those of the runs one after another. The layer is computed of all of them,
// and `chosen` is null, or of the `num_chosen` rows there, which are some of them. Returns 0, or 1 where there is no
// memory.
__attribute__((visibility("default"))) int JOINED(encoder_layer, ISA)(
    const Layer *layer, float *out, const float *rows, ptrdiff_t num, const float *chosen, ptrdiff_t num_chosen,
    float eps, float scale, int causal, ptrdiff_t window, const int64_t *positions, const int32_t *runs,
    ptrdiff_t num_runs, const struct Distances *distances) {
    return one_layer(layer, out, rows, num, chosen, num_chosen, eps, scale, causal, window, positions, runs, num_runs,
                     distances, NULL);
}

// Layers one after another, each of all rows that the one before gives. The last one's are in `out`; `spare` has as much
// room. `known` is what is known of the first product of the first layer, or null. Returns 0, or 1 where there is no
// memory.
__attribute__((visibility("default"))) int JOINED(encoder_layers, ISA)(
    const Layer *const *layers, ptrdiff_t num_layers, float *out, float *spare, const float *rows, ptrdiff_t num,
    const Known *known, float eps, float scale, int causal, ptrdiff_t window, const int32_t *runs, ptrdiff_t num_runs) {
    for (ptrdiff_t i = 0; i < num_layers; i++) {
        float *to = (num_layers - i) % 2 ? out : spare;
        if (one_layer(layers[i], to, rows, num, NULL, num, eps, scale, causal, window, NULL, runs, num_runs, NULL,
                      i ? NULL : known))
            return 1;
        rows = to;
    }
    return 0;
}
