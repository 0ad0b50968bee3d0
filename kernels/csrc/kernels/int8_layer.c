// A whole layer of a plain encoder in 8-bit integers: attention, then a feed-forward, each added to its input and then
// normalised.
//
// It is the kernels of the other sources one after another, so its results are theirs, bit for bit. Sequences go through
// the attention in groups and rows through the rest in blocks, so that what lies between two products stays in the
// second-level cache.

#include <stdlib.h>

#include "../int8.h"
#include "../kernels.h"
#include "../team.h"

// As Python's `Int8Layer` packs it: the products of all rows, and of some rows, of which `query` is one.
typedef struct {
    Weight qkv, query, key_value, out, up, down;
    const float *attention_norm, *attention_norm_bias, *norm, *norm_bias;
    ptrdiff_t size, heads;
} Layer;

// What a call works in.
typedef struct {
    uint8_t *codes, *attention;
    float *keys, *queries;  // of a group
    float *hidden, *inner;  // of a block
} Room;

INLINE ptrdiff_t larger(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }

static void times(float *out, const Room *room, const float *rows, const Weight *by, ptrdiff_t num) {
    JOINED(int8_linear, ISA)(out, room->codes, rows, by->panels, by->sums, by->scales, by->bias, num, by->depth, by->width,
                             by->depth, (int)by->activation);
}

// How many rows of a sequence are read: not all of them need be keys.
INLINE ptrdiff_t rows_of(const int32_t *span) { return larger(span[1], span[3]); }

// How many of the sequences from `span` on make a group, and how many rows that is: at most BLOCK, but one sequence.
INLINE ptrdiff_t grouped(const int32_t *span, ptrdiff_t num_seqs, ptrdiff_t *num_rows) {
    const ptrdiff_t first = span[2];
    ptrdiff_t seqs = 0;
    for (; seqs < num_seqs; seqs++, span += 4) {
        const ptrdiff_t end = span[2] - first + rows_of(span);
        if (seqs > 0 && end > BLOCK) break;
        *num_rows = end;
    }
    return seqs;
}

// The attention of all sequences; the rows of queries and of keys lie in the order of their spans.
static void attend(const Layer *layer, const Room *room, float *out, const float *rows, const float *chosen,
                   const Known *known, const int32_t *spans, ptrdiff_t num_seqs, float scale) {
    const ptrdiff_t size = layer->size, key_step = chosen ? 2 * size : 3 * size, query_step = chosen ? size : 3 * size;
    const float *keys = chosen ? room->keys : room->keys + size, *queries = chosen ? room->queries : room->keys;
    ptrdiff_t seqs, num_rows;
    for (ptrdiff_t seq = 0; seq < num_seqs; seq += seqs) {
        const int32_t *of_group = spans + 4 * seq;
        seqs = grouped(of_group, num_seqs - seq, &num_rows);
        const int32_t *last = of_group + 4 * (seqs - 1);
        const ptrdiff_t first_query = of_group[0], first_key = of_group[2];
        if (known)
            JOINED(known_rows, ISA)(room->keys, known, first_key, num_rows, key_step);
        else
            times(room->keys, room, rows + first_key * size, chosen ? &layer->key_value : &layer->qkv, num_rows);
        if (chosen) times(room->queries, room, chosen + first_query * size, &layer->query, last[0] + last[1] - first_query);
        JOINED(int8_attention, ISA)(out, room->attention, queries - first_query * query_step, keys - first_key * key_step,
                                    keys - first_key * key_step + size, of_group, seqs, layer->heads, size / layer->heads,
                                    query_step, key_step, scale);
    }
}

// All that comes after the attention, whose rows are in `out`; `given` is what the layer was given in these rows.
static void feed_forward(const Layer *layer, const Room *room, float *out, const float *given, ptrdiff_t num, float eps) {
    const ptrdiff_t size = layer->size, inner = layer->up.width;
    Codes codes = {.codes = room->codes};
    float *hidden = room->hidden;
    // GELU costs half as much where rows are rounded as behind the sums of a product, which several cores share, though.
    const int gelu_later = layer->up.activation == GELU && team_size() == 1;
    Weight up = layer->up;
    if (gelu_later) up.activation = NONE;
    for (ptrdiff_t first = 0; first < num; first += BLOCK) {
        const ptrdiff_t count = num - first < BLOCK ? num - first : BLOCK;
        float *rows = out + first * size;
        JOINED(int8_codes, ISA)(&codes, rows, size, count, size);
        JOINED(int8_times, ISA)(hidden, size, &codes, &layer->out, count);
        JOINED(add_norm, ISA)(hidden, hidden, given + first * size, layer->attention_norm, layer->attention_norm_bias, eps,
                              count, size, size, size);
        JOINED(int8_codes, ISA)(&codes, hidden, size, count, size);
        JOINED(int8_times, ISA)(room->inner, inner, &codes, &up, count);
        if (gelu_later)
            JOINED(int8_gelu_codes, ISA)(&codes, room->inner, inner, count, inner);
        else
            JOINED(int8_codes, ISA)(&codes, room->inner, inner, count, inner);
        JOINED(int8_times, ISA)(rows, size, &codes, &layer->down, count);
        JOINED(add_norm, ISA)(rows, rows, hidden, layer->norm, layer->norm_bias, eps, count, size, size, size);
    }
}

// The layer, and what is known of its first product where `chosen` is null.
static int one_layer(const Layer *layer, float *out, const float *rows, const float *chosen, ptrdiff_t num,
                     const Known *known, float eps, float scale, const int32_t *spans, ptrdiff_t num_seqs) {
    const ptrdiff_t size = layer->size, inner = layer->up.width;
    ptrdiff_t most = BLOCK, needed;
    for (ptrdiff_t seq = 0; seq < num_seqs; seq++) most = larger(most, rows_of(spans + 4 * seq));
    JOINED(int8_attention_room, ISA)(&needed, most, most, layer->heads, size / layer->heads);
    const ptrdiff_t bytes[] = {
        BLOCK * padded_to(larger(size, inner), 4) + 64, needed, 4 * most * 3 * size, chosen ? 4 * most * size : 0,
        4 * BLOCK * size, 4 * BLOCK * inner,
    };
    ptrdiff_t starts[7] = {0};
    for (int i = 0; i < 6; i++) starts[i + 1] = starts[i] + padded_to(bytes[i], 64);
    uint8_t *memory;
    if (posix_memalign((void **)&memory, 64, (size_t)starts[6])) return 1;
    const Room room = {
        memory, memory + starts[1], (float *)(memory + starts[2]), (float *)(memory + starts[3]),
        (float *)(memory + starts[4]), (float *)(memory + starts[5]),
    };
    attend(layer, &room, out, rows, chosen, known, spans, num_seqs, scale);
    feed_forward(layer, &room, out, chosen ? chosen : rows, num, eps);
    free(memory);
    return 0;
}

// `rows` are those of all sequences, of the layer's size. The layer is computed of all of them, and `chosen` is null, or
// of the `num` rows there, which are the queries; else `num` counts all. Returns 0, or 1 where there is no memory.
__attribute__((visibility("default"))) int JOINED(int8_layer, ISA)(
    const Layer *layer, float *out, const float *rows, const float *chosen, ptrdiff_t num, float eps, float scale,
    const int32_t *spans, ptrdiff_t num_seqs) {
    return one_layer(layer, out, rows, chosen, num, NULL, eps, scale, spans, num_seqs);
}

// Layers one after another, each of all rows that the one before gives. The last one's are in `out`; `spare` has as much
// room. `known` is what is known of the first product of the first layer, or null. Returns 0, or 1 where there is no
// memory.
__attribute__((visibility("default"))) int JOINED(int8_layers, ISA)(const Layer *const *layers, ptrdiff_t num_layers,
                                                                    float *out, float *spare, const float *rows,
                                                                    ptrdiff_t num, const Known *known, float eps,
                                                                    float scale, const int32_t *spans,
                                                                    ptrdiff_t num_seqs) {
    for (ptrdiff_t i = 0; i < num_layers; i++) {
        float *to = (num_layers - i) % 2 ? out : spare;
        if (one_layer(layers[i], to, rows, NULL, num, i ? NULL : known, eps, scale, spans, num_seqs)) return 1;
        rows = to;
    }
    return 0;
}
