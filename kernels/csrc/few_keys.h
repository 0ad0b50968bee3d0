// Attention of short sequences, in which every row sees every key.
//
// The queries are turned, not the keys: each lane is a row, so that the softmax needs no sums across lanes, keys and
// values are read where they lie, and a text of no more than W tokens fills the vectors that it takes.

#ifndef CENOTE_FEW_KEYS_H
#define CENOTE_FEW_KEYS_H

#include "tile.h"
#include "transpose.h"
#include "weights.h"

// With more keys than this, turning keys costs less than it gains.
#define FEW_KEYS (8 * W)

// One sequence; rows start so many floats apart, and `share` heads of queries share one of keys.
typedef struct {
    float *out;
    const float *query, *key, *value;
    ptrdiff_t out_step, query_step, key_step, value_step, num_rows, num_keys, heads, share, size;
    float scale;
} Few;

// Room for the turned queries and the scores of COLS rows, in floats.
INLINE ptrdiff_t few_keys_room(ptrdiff_t size) { return (size + FEW_KEYS) * COLS; }

// Scores of some keys and up to COLS turned queries, `wide` where these are more than W.
INLINE void few_scores(int num, int wide, float *scores, const float *key, ptrdiff_t step, const float *turned,
                       ptrdiff_t size) {
    V sums[ROWS][2];
    for (int r = 0; r < num; r++) sums[r][0] = sums[r][1] = v_all(0);
    multiply_apart(num, wide, 0, sums, key, step, 1, turned, COLS, size);
    for (int r = 0; r < num; r++) {
        v_store(scores + r * COLS, sums[r][0]);
        if (wide) v_store(scores + r * COLS + W, sums[r][1]);
    }
}

// Scores of all keys of one head; in parts of about the same size, since a few keys alone cannot keep the units of
// products busy.
static void few_scores_of(const Few *few, ptrdiff_t head, float *scores, const float *turned, ptrdiff_t num_rows) {
    const float *key = few->key + head / few->share * few->size;
    const ptrdiff_t step = few->key_step, part = evenly(few->num_keys);
    for (ptrdiff_t first = 0; first < few->num_keys; first += part, scores += part * COLS, key += part * step) {
        const ptrdiff_t num = least(part, few->num_keys - first);
#define NARROW(n) few_scores(n, 0, scores, key, step, turned, few->size);
#define WIDE(n) few_scores(n, 1, scores, key, step, turned, few->size);
        if (num_rows > W) {
            FOR_ROWS(num, WIDE)
        } else {
            FOR_ROWS(num, NARROW)
        }
    }
}

// W scores of each key become `e^(scale (score - largest))`; the reciprocals of their sums.
INLINE V few_weights(float *scores, ptrdiff_t num_keys, float scale) {
    V most = v_load(scores), sum = v_all(0);
    for (ptrdiff_t key = 1; key < num_keys; key++) most = v_max(most, v_load(scores + key * COLS));
    const V factor = v_all(scale * LOG2_E);
    ptrdiff_t key = 0;
    for (; key + TOGETHER <= num_keys; key += TOGETHER)
        sum = to_weights(TOGETHER, scores + key * COLS, COLS, factor, most, sum);
    for (; key < num_keys; key++) sum = to_weights(1, scores + key * COLS, COLS, factor, most, sum);
    return v_all(1.0f) / sum;
}

// Sums of the values of one head by the weights of some rows, times `factors`.
INLINE void few_sums(int num, const Few *few, float *out, const float *value, const float *weights,
                     const float factors[]) {
    for (ptrdiff_t col = 0; col < few->size; col += COLS) {
        V sums[ROWS][2];
        for (int r = 0; r < num; r++) sums[r][0] = sums[r][1] = v_all(0);
        multiply_apart(num, 1, 0, sums, weights, 1, COLS, value + col, few->value_step, few->num_keys);
        for (int r = 0; r < num; r++) {
            v_store(out + r * few->out_step + col, sums[r][0] * v_all(factors[r]));
            v_store(out + r * few->out_step + col + W, sums[r][1] * v_all(factors[r]));
        }
    }
}

static void few_sums_of(const Few *few, ptrdiff_t head, float *out, const float *weights, const float *factors,
                        ptrdiff_t num_rows) {
    const float *value = few->value + head / few->share * few->size;
    const ptrdiff_t part = evenly(num_rows);
    for (ptrdiff_t first = 0; first < num_rows; first += part) {
        const ptrdiff_t num = least(part, num_rows - first);
#define SUMS(n) few_sums(n, few, out + first * few->out_step, value, weights + first, factors + first);
        FOR_ROWS(num, SUMS)
    }
}

// `size` must be a multiple of COLS, `num_keys` at most FEW_KEYS and not 0.
static void attend_few_keys(const Few *few, float *room) {
    float *scores = room + few->size * COLS, factors[COLS];
    for (ptrdiff_t head = 0; head < few->heads; head++) {
        for (ptrdiff_t row = 0; row < few->num_rows; row += COLS) {
            const ptrdiff_t count = least(COLS, few->num_rows - row);
            turn(room, few->query + row * few->query_step + head * few->size, few->query_step, count, few->size);
            few_scores_of(few, head, scores, room, count);
            for (ptrdiff_t lane = 0; lane < count; lane += W)
                v_store(factors + lane, few_weights(scores + lane, few->num_keys, few->scale));
            few_sums_of(few, head, few->out + row * few->out_step + head * few->size, scores, factors, count);
        }
    }
}

#endif
