// Attention in 8-bit integers: of the queries, of the keys, of the powers and of the values.
//
// A query has a scale, a key has one, and a channel of the values has one over all keys of its sequence. Powers are
// 255 where the score is greatest, and their exact sum divides. A row depends on its sequence alone.

#include "../int8.h"
#include "../kernels.h"
#include "../lanes.h"

INLINE V part_of(const float *row, ptrdiff_t i, ptrdiff_t size) {
    return size - i >= W ? v_load(row + i) : v_load_some(row + i, mask_of(size - i));
}

#define SAME(x) (x)
ACROSS(i_largest_of, VI, i_max, SAME, SAME)
ACROSS(i_sum_of, VI, i_plus, SAME, SAME)

typedef struct {
    ptrdiff_t heads, size;  // of the rows
    ptrdiff_t depth, deep;  // the size in whole fours, and in whole panels
    ptrdiff_t wide;         // the keys in whole panels
    int8_t *keys, *values;  // panels, those of one head after those of another, as all that follows
    int32_t *key_sums;      // -128 times the sum of the codes of each key
    float *key_scales, *value_scales, *query_scales;
    uint8_t *queries;       // codes
    float *scores;          // of a tile of queries of one head
    uint8_t *powers;        // the same
} Room;

// The room for one sequence; returns how many bytes that is.
INLINE ptrdiff_t room_of(Room *room, uint8_t *start, ptrdiff_t queries, ptrdiff_t keys, ptrdiff_t heads, ptrdiff_t size) {
    const ptrdiff_t wide = padded_to(keys, PANEL), deep = padded_to(size, PANEL), depth = padded_to(size, 4);
    ptrdiff_t used = 0;
    *room = (Room){.heads = heads, .size = size, .depth = depth, .deep = deep, .wide = wide};
#define TAKE(name, bytes) room->name = start ? (void *)(start + used) : NULL, used += padded_to(bytes, 64)
    TAKE(keys, heads * wide * depth);
    TAKE(values, heads * wide * deep);
    TAKE(key_sums, heads * wide * 4);
    TAKE(key_scales, heads * wide * 4);
    TAKE(value_scales, heads * deep * 4);
    TAKE(query_scales, heads * queries * 4);
    TAKE(queries, heads * queries * depth + 64);
    TAKE(scores, ROWS * wide * 4);
    TAKE(powers, ROWS * wide + 64);
    return used;
}

// Codes within +-largest of each head of a row, `size` of them and zeros up to `depth`, stored plus `zero` as bytes with
// room for a vector behind them. `scales` gets what turns them back, for as many heads as are whole vectors, which is not
// finite where a value is not.
INLINE void even_codes(uint8_t *codes, float *scales, const float *row, ptrdiff_t heads, ptrdiff_t size, ptrdiff_t depth,
                       int largest, int zero) {
    for (ptrdiff_t first = 0; first < heads; first += W) {
        const ptrdiff_t count = heads - first < W ? heads - first : W;
        VI most[W];
        float inverses[W];
        for (int h = 0; h < W; h++) most[h] = i_bits(v_all(1e-30f));
        for (ptrdiff_t h = 0; h < count; h++)
            for (ptrdiff_t i = 0; i < size; i += W)
                most[h] = i_max(most[h], i_size(part_of(row + (first + h) * size, i, size)));
        const V range = v_bits(i_largest_of(most));
        v_store(inverses, v_all((float)largest) / range);
        v_store(scales + first, range * v_all(1.0f / (float)largest));
        // The next codes overwrite what a store of whole vectors leaves behind these.
        for (ptrdiff_t h = 0; h < count; h++)
            for (ptrdiff_t i = 0; i < depth; i += W) {
                const V x = part_of(row + (first + h) * size, i, size) * v_all(inverses[h]);
                store_bytes(codes + (first + h) * depth + i, i_plus(i_rounded(x), i_all(zero)));
            }
    }
}

INLINE void pack_queries(const Room *room, const float *rows, ptrdiff_t step, ptrdiff_t num, float scale, ptrdiff_t size) {
    const ptrdiff_t heads = room->heads, depth = padded_to(size, 4);
    float scales[padded_to(heads, W)];
    for (ptrdiff_t row = 0; row < num; row++) {
        even_codes(room->queries + row * heads * depth, scales, rows + row * step, heads, size, depth, 127, 128);
        for (ptrdiff_t h = 0; h < heads; h++) room->query_scales[row * heads + h] = scale * scales[h];
    }
}

// W keys at a time, whose codes are turned four by four. Returns 0, or NaN where a key is not finite.
INLINE float pack_keys(const Room *room, const float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size) {
    const ptrdiff_t wide = room->wide, heads = room->heads, depth = padded_to(size, 4), each = padded_to(heads * depth, 4 * W);
    V bad = v_all(0);
    uint8_t codes[W * each + 64];
    float scales[padded_to(heads, W)];
    for (ptrdiff_t first = 0; first < num; first += W) {
        const ptrdiff_t count = num - first < W ? num - first : W;
        float *to_scales = room->key_scales + first;
        for (ptrdiff_t h = 0; h < heads; h++) v_store(to_scales + h * wide, v_all(0));
        for (ptrdiff_t key = 0; key < count; key++) {
            even_codes(codes + key * each, scales, rows + (first + key) * step, heads, size, depth, LARGEST, 0);
            for (ptrdiff_t h = 0; h < heads; h++) to_scales[h * wide + key] = scales[h];
            for (ptrdiff_t h = 0; h < heads; h += W) bad = bad + v_load(scales + h) * v_all(0);
        }
        int8_t *to = room->keys + first / PANEL * PANEL * depth + first % PANEL * 4;
        for (ptrdiff_t k = 0; k < heads * depth; k += 4 * W) {
            V v[W];
            for (int i = 0; i < W; i++) v[i] = i < count ? v_bits(i_load(codes + i * each + k)) : v_all(0);
            transpose(v);
            for (ptrdiff_t i = 0; i < W && k + 4 * i < heads * depth; i++)
                i_store(to + (k + 4 * i) / depth * wide * depth + (k + 4 * i) % depth * PANEL, i_bits(v[i]));
        }
    }
    // Of keys that only fill a panel nothing is read but these.
    if (num % PANEL && num % PANEL <= W)
        for (ptrdiff_t h = 0; h < heads; h++) v_store(room->key_scales + h * wide + wide - W, v_all(0));
    uint8_t ones[depth];
    memset(ones, 128, depth);
    for (ptrdiff_t head = 0; head < heads; head++)
        for (ptrdiff_t key = 0; key < wide; key += COLS) {
            VI sums[ROWS][2] = {{i_all(0), i_all(0)}};
            i_tile(1, sums, ones, depth, panel_at(room->keys + head * wide * depth, key, depth), depth, 0);
            i_store(room->key_sums + head * wide + key, i_minus(i_all(0), sums[0][0]));
            i_store(room->key_sums + head * wide + key + W, i_minus(i_all(0), sums[0][1]));
        }
    return v_sum(bad);
}

INLINE void pack_values(const Room *room, const float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size) {
    const ptrdiff_t depth = padded_to(num, 4), deep = room->deep;
    for (ptrdiff_t head = 0; head < room->heads; head++)
        for (ptrdiff_t col = 0; col < deep; col += W) {
            const float *from = rows + head * size;
            VI most = i_bits(v_all(1e-30f));
            for (ptrdiff_t key = 0; key < num && col < size; key++)
                most = i_max(most, i_size(part_of(from + key * step, col, size)));
            const V inverse = v_all(LARGEST) / v_bits(most);
            v_store(room->value_scales + head * deep + col, v_bits(most) * v_all(1.0f / LARGEST));
            int8_t *to = room->values + head * room->wide * deep + col / PANEL * PANEL * depth + col % PANEL * 4;
            for (ptrdiff_t key = 0; key < depth; key += 4) {
                VI four = i_all(0);
                for (int k = 3; k >= 0; k--) {
                    V x = v_all(0);
                    if (key + k < num && col < size) x = part_of(from + (key + k) * step, col, size) * inverse;
                    four = i_or(i_shifted(four), i_and(i_rounded(x), i_all(255)));
                }
                i_store(to + key * PANEL, four);
            }
        }
}

// Scores of a tile of queries but for the scale of each.
INLINE void score(int num, const Room *room, ptrdiff_t head, const uint8_t *codes) {
    const ptrdiff_t wide = room->wide, depth = room->depth;
    for (ptrdiff_t key = 0; key < wide; key += COLS) {
        VI sums[ROWS][2];
        const int32_t *first = room->key_sums + head * wide + key;
        const VI left = i_load(first), right = i_load(first + W);
#pragma GCC unroll 16
        for (int r = 0; r < num; r++) sums[r][0] = left, sums[r][1] = right;
        i_tile(num, sums, codes, room->heads * depth, panel_at(room->keys + head * wide * depth, key, depth), depth, 0);
        const float *scales = room->key_scales + head * wide + key;
        const V left_scale = v_load(scales), right_scale = v_load(scales + W);
#pragma GCC unroll 16
        for (int r = 0; r < num; r++) {
            v_store(room->scores + r * wide + key, v_of(sums[r][0]) * left_scale);
            v_store(room->scores + r * wide + key + W, v_of(sums[r][1]) * right_scale);
        }
    }
}

// Codes of 255 * 2^(scale * (score - greatest)) of each query of a tile, with zeros up to a multiple of 4; `totals` gets
// their sums.
INLINE void powers(int num, const Room *room, const float *scales, ptrdiff_t keys, float totals[W]) {
    const V nothing = v_all(-INFINITY);
    const ptrdiff_t whole = keys / W * W, wide = room->wide;
    const Mask rest = mask_of(keys - whole);
    V greatest[W];
    VI sums[W];
    float shifts[W];
#pragma GCC unroll 16
    for (int r = 0; r < W; r++) greatest[r] = nothing, sums[r] = i_all(0);
    for (int r = 0; r < num; r++) {
        const float *scores = room->scores + r * wide;
        for (ptrdiff_t i = 0; i < whole; i += W) greatest[r] = v_max(greatest[r], v_load(scores + i));
        if (whole < keys) greatest[r] = v_max(greatest[r], v_either(v_load(scores + whole), nothing, rest));
    }
    v_store(shifts, v_all(7.99435344f) - v_load(scales) * v_largest_of(greatest));
    for (int r = 0; r < num; r++) {
        const float *scores = room->scores + r * wide;
        const V shift = v_all(shifts[r]), by = v_all(scales[r]);
        VI sum = i_all(0);
        for (ptrdiff_t i = 0; i < keys; i += W) {
            const V x = v_max(v_all(-40.0f), v_fma(v_load(scores + i), by, shift)), n = v_round(x), r_ = x - n;
            // Within 8e-5 of itself: a fiftieth of a code.
            V p = v_fma(v_all(0.055171546f), r_, v_all(0.24261111f));
            p = v_scaled(v_fma(v_fma(p, r_, v_all(0.693261f)), r_, v_all(0.99992806f)), n);
            VI code = i_rounded(i < whole ? p : v_only(p, rest));
            sum = i_plus(sum, code);
            store_codes(room->powers + r * wide + i, code);
        }
        sums[r] = sum;
    }
    v_store(totals, v_of(i_sum_of(sums)));
}

// The mean of the values by the powers of a tile of queries.
INLINE void weigh(int num, const Room *room, ptrdiff_t head, float *out, ptrdiff_t step, const float *inverses,
                  ptrdiff_t keys) {
    const ptrdiff_t depth = padded_to(keys, 4);
    for (ptrdiff_t col = 0; col < room->size; col += COLS) {
        VI sums[ROWS][2];
#pragma GCC unroll 16
        for (int r = 0; r < num; r++) sums[r][0] = i_all(0), sums[r][1] = i_all(0);
        const int8_t *panels = room->values + head * room->wide * room->deep;
        i_tile(num, sums, room->powers, room->wide, panel_at(panels, col, depth), depth, 0);
        const float *scales = room->value_scales + head * room->deep + col;
        const V left = v_load(scales), right = v_load(scales + W);
        const ptrdiff_t wanted = room->size - col;
#pragma GCC unroll 16
        for (int r = 0; r < num; r++) {
            const V a = v_of(sums[r][0]) * left * v_all(inverses[r]), b = v_of(sums[r][1]) * right * v_all(inverses[r]);
            float *to = out + r * step + col;
            if (wanted >= COLS) {
                v_store(to, a), v_store(to + W, b);
            } else {
                v_store_some(to, a, mask_of(wanted));
                if (wanted > W) v_store_some(to + W, b, mask_of(wanted - W));
            }
        }
    }
}

INLINE void tile_of_queries(int num, const Room *room, ptrdiff_t head, float *out, ptrdiff_t step, ptrdiff_t first,
                            ptrdiff_t keys, float bad) {
    float scales[W] = {0}, inverses[W];
    for (int r = 0; r < num; r++) scales[r] = room->query_scales[(first + r) * room->heads + head];
    score(num, room, head, room->queries + (first * room->heads + head) * room->depth);
    powers(num, room, scales, keys, inverses);
    // What is not finite must reach the result, and codes cannot say it.
    v_store(inverses, v_all(1.0f) / v_load(inverses) + (v_load(scales) * v_all(0) + v_all(bad)));
    weigh(num, room, head, out, step, inverses, keys);
}

// All queries of one head.
INLINE void attend(const Room *room, ptrdiff_t head, float *out, ptrdiff_t step, ptrdiff_t queries, ptrdiff_t keys,
                   float bad) {
    const ptrdiff_t count = (queries + ROWS - 1) / ROWS;
    for (ptrdiff_t n = 0, row = 0; n < count; n++) {
        const ptrdiff_t next = queries * (n + 1) / count;
#define TILE(n) tile_of_queries(n, room, head, out + row * step, step, row, keys, bad);
        FOR_ROWS(next - row, TILE)
        row = next;
    }
}

// Returns what `pack_keys` does.
INLINE float packed(const Room *room, const float *queries, ptrdiff_t query_step, const float *keys, const float *values,
                    ptrdiff_t key_step, const int32_t *span, float scale, ptrdiff_t size) {
    pack_queries(room, queries + span[0] * query_step, query_step, span[1], scale * 1.44269504f, size);
    const float bad = pack_keys(room, keys + span[2] * key_step, key_step, span[3], size);
    pack_values(room, values + span[2] * key_step, key_step, span[3], size);
    return bad;
}

// How many bytes of room `int8_attention` needs for a sequence of so many queries and keys.
KERNEL(int8_attention_room)(ptrdiff_t *bytes, ptrdiff_t queries, ptrdiff_t keys, ptrdiff_t heads, ptrdiff_t size) {
    Room room;
    *bytes = room_of(&room, NULL, queries, keys, heads, size);
}

// Attention of the queries of each sequence over its keys. `spans` has for each: first query, number of queries, first
// key, number of keys. Heads lie side by side in a row. `start` has room for each of the sequences.
KERNEL(int8_attention)
(float *out, uint8_t *start, const float *queries, const float *keys, const float *values, const int32_t *spans,
 ptrdiff_t num_seqs, ptrdiff_t heads, ptrdiff_t size, ptrdiff_t query_step, ptrdiff_t key_step, float scale) {
    const ptrdiff_t step = heads * size;
    for (ptrdiff_t seq = 0; seq < num_seqs; seq++, spans += 4) {
        Room room;
        room_of(&room, start, spans[1], spans[3], heads, size);
        const float bad =
            size == 32 ? packed(&room, queries, query_step, keys, values, key_step, spans, scale, 32)
            : size == 64 ? packed(&room, queries, query_step, keys, values, key_step, spans, scale, 64)
                         : packed(&room, queries, query_step, keys, values, key_step, spans, scale, size);
        for (ptrdiff_t head = 0; head < heads; head++)
            attend(&room, head, out + spans[0] * step + head * size, step, spans[1], spans[3], bad);
    }
}
