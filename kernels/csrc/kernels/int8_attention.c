// Attention in 8-bit integers: of the queries, of the keys, of the powers and of the values.
//
// A query has a scale, a key has one, and a channel of the values has one over all keys of its sequence. Powers are
// 255 where the score is greatest, and their exact sum divides. A row depends on its sequence alone.

#include "../int8.h"
#include "../kernels.h"

INLINE V part_of(const float *row, ptrdiff_t i, ptrdiff_t size) {
    return size - i >= W ? v_load(row + i) : v_load_some(row + i, mask_of(size - i));
}

// Codes within +-largest of a row, `size` of them and zeros up to `padded`, stored plus `zero` as bytes. Returns what
// turns them back, which is not finite where a value is not.
INLINE float even_codes(uint8_t *codes, const float *row, ptrdiff_t size, ptrdiff_t padded, int largest, int zero) {
    VI most = i_bits(v_all(1e-30f));
    for (ptrdiff_t i = 0; i < size; i += W) most = i_max(most, i_size(part_of(row, i, size)));
    const int32_t bits = i_largest(most);
    float range;
    memcpy(&range, &bits, 4);
    const V inverse = v_all((float)largest / range);
    for (ptrdiff_t i = 0; i < padded; i += W)
        store_bytes(codes + i, i_plus(i_rounded(part_of(row, i, size) * inverse), i_all(zero)));
    return range * (1.0f / (float)largest);
}

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

INLINE void pack_queries(const Room *room, const float *rows, ptrdiff_t step, ptrdiff_t num, float scale) {
    for (ptrdiff_t row = 0; row < num; row++)
        for (ptrdiff_t head = 0; head < room->heads; head++) {
            const ptrdiff_t at = row * room->heads + head;
            const float *from = rows + row * step + head * room->size;
            // The next codes overwrite what a store of whole vectors leaves behind these.
            room->query_scales[at] =
                scale * even_codes(room->queries + at * room->depth, from, room->size, room->depth, 127, 128);
        }
}

// Returns 0, or NaN where a key is not finite.
INLINE float pack_keys(const Room *room, const float *rows, ptrdiff_t step, ptrdiff_t num) {
    const ptrdiff_t depth = room->depth, wide = room->wide;
    float bad = 0;
    uint8_t codes[depth + 64];
    for (ptrdiff_t key = 0; key < wide; key++)
        for (ptrdiff_t head = 0; head < room->heads; head++) {
            float scale = 0;
            if (key < num)
                scale = even_codes(codes, rows + key * step + head * room->size, room->size, depth, LARGEST, 0);
            else
                memset(codes, 0, depth);
            room->key_scales[head * wide + key] = scale;
            bad += scale * 0.0f;
            int8_t *to = room->keys + head * wide * depth + key / PANEL * PANEL * depth + key % PANEL * 4;
            for (ptrdiff_t k = 0; k < depth; k += 4) memcpy(to + k * PANEL, codes + k, 4);
        }
    memset(codes, 128, depth);
    for (ptrdiff_t head = 0; head < room->heads; head++)
        for (ptrdiff_t key = 0; key < wide; key += COLS) {
            VI sums[ROWS][2] = {{i_all(0), i_all(0)}};
            i_tile(1, sums, codes, depth, panel_at(room->keys + head * wide * depth, key, depth), depth, 0);
            i_store(room->key_sums + head * wide + key, i_minus(i_all(0), sums[0][0]));
            i_store(room->key_sums + head * wide + key + W, i_minus(i_all(0), sums[0][1]));
        }
    return bad;
}

INLINE void pack_values(const Room *room, const float *rows, ptrdiff_t step, ptrdiff_t num) {
    const ptrdiff_t depth = padded_to(num, 4), size = room->size, deep = room->deep;
    float *scales = room->value_scales;
    for (ptrdiff_t i = 0; i < room->heads * deep; i += W) v_store(scales + i, v_all(1e-30f));
    for (ptrdiff_t key = 0; key < num; key++)
        for (ptrdiff_t head = 0; head < room->heads; head++)
            for (ptrdiff_t col = 0; col < size; col += W) {
                float *most = scales + head * deep + col;
                const V x = part_of(rows + key * step + head * size, col, size);
                v_store(most, v_bits(i_max(i_bits(v_load(most)), i_size(x))));
            }
    for (ptrdiff_t key = 0; key < depth; key += 4)
        for (ptrdiff_t head = 0; head < room->heads; head++)
            for (ptrdiff_t col = 0; col < deep; col += W) {
                int8_t *to = room->values + head * room->wide * deep + col / PANEL * PANEL * depth + col % PANEL * 4;
                const V inverse = v_all(LARGEST) / v_load(scales + head * deep + col);
                const float *from = rows + key * step + head * size;
                VI four = i_all(0);
                for (int k = 3; k >= 0; k--) {
                    V x = v_all(0);
                    if (key + k < num && col < size) x = part_of(from + k * step, col, size) * inverse;
                    four = i_or(i_shifted(four), i_and(i_rounded(x), i_all(255)));
                }
                i_store(to + key * PANEL, four);
            }
    for (ptrdiff_t i = 0; i < room->heads * deep; i += W) v_store(scales + i, v_load(scales + i) * v_all(1.0f / LARGEST));
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

// Codes of 255 * 2^(scale * (score - greatest)), with zeros up to a multiple of 4; returns their sum.
INLINE float powers(uint8_t *codes, const float *scores, float scale, ptrdiff_t num) {
    const V nothing = v_all(-INFINITY);
    const ptrdiff_t whole = num / W * W;
    const Mask rest = mask_of(num - whole);
    V greatest = nothing;
    for (ptrdiff_t i = 0; i < whole; i += W) greatest = v_max(greatest, v_load(scores + i));
    if (whole < num) greatest = v_max(greatest, v_either(v_load(scores + whole), nothing, rest));
    const V shift = v_all(7.99435344f - scale * v_largest(greatest)), by = v_all(scale);
    VI sum = i_all(0);
    for (ptrdiff_t i = 0; i < num; i += W) {
        const V x = v_max(v_all(-40.0f), v_fma(v_load(scores + i), by, shift)), n = v_round(x), r = x - n;
        // Within 8e-5 of itself: a fiftieth of a code.
        V p = v_fma(v_all(0.055171546f), r, v_all(0.24261111f));
        p = v_scaled(v_fma(v_fma(p, r, v_all(0.693261f)), r, v_all(0.99992806f)), n);
        VI code = i_rounded(i < whole ? p : v_only(p, rest));
        sum = i_plus(sum, code);
        store_codes(codes + i, code);
    }
    return (float)i_sum(sum);
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
    float inverses[ROWS];
    score(num, room, head, room->queries + (first * room->heads + head) * room->depth);
    for (int r = 0; r < num; r++) {
        const float scale = room->query_scales[(first + r) * room->heads + head];
        const float sum = powers(room->powers + r * room->wide, room->scores + r * room->wide, scale, keys);
        // What is not finite must reach the result, and codes cannot say it.
        inverses[r] = 1.0f / sum + (scale * 0.0f + bad);
    }
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
        pack_queries(&room, queries + spans[0] * query_step, query_step, spans[1], scale * 1.44269504f);
        const float bad = pack_keys(&room, keys + spans[2] * key_step, key_step, spans[3]);
        pack_values(&room, values + spans[2] * key_step, key_step, spans[3]);
        for (ptrdiff_t head = 0; head < heads; head++)
            attend(&room, head, out + spans[0] * step + head * size, step, spans[1], spans[3], bad);
    }
}
