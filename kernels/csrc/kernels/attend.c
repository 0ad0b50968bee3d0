// Attention of many sequences of any lengths in one call.
//
// For each head of a sequence its keys are turned into panels, so that scores are products of tiles, and so are the
// weighted sums of the values. All scores of a few query rows are held at once: memory is linear in the length. Every
// sum has one order, so a sequence does not depend on its batch, nor a row on the rows beside it. Short sequences take
// the way of few_keys.h.

#include <math.h>
#include <stdlib.h>

#include "../distances.h"
#include "../few_keys.h"
#include "../kernels.h"
#include "../lanes.h"
#include "../tile.h"
#include "../transpose.h"
#include "../weights.h"

// Keys whose values are summed in one chain; a multiple of it begins another, wherever a row's keys begin.
#define PART 512

typedef struct {
    float *out;
    const float *query, *key, *value;
    ptrdiff_t query_step, key_step, value_step, heads, key_heads, size;
    float scale;
    int causal;
    ptrdiff_t window;            // -1 for none
    const int64_t *positions;    // of the query rows in their sequences; null where they are the last tokens
    float *keys, *values, *scores;
    Reach reach; // its tables are null where scores are of tokens alone
} Call;

// Between rows of scores; not a multiple of what the first-level cache can tell apart.
INLINE ptrdiff_t scores_step(ptrdiff_t num_keys) { return whole(num_keys, COLS) + 16; }

// `num` rows of one head to panels `[num, COLS]`, filled with zeros to the right.
static void copy_values(float *panels, const float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size) {
    for (ptrdiff_t col = 0; col < size; col += COLS)
        for (ptrdiff_t row = 0; row < num; row++, panels += COLS)
            for (ptrdiff_t c = 0; c < COLS; c += W)
                v_store(panels + c, v_load_some(rows + row * step + col + c, mask_of(size - col - c)));
}

// Adds `value`, and what lies in `at` unless it is the first, times `factor`.
INLINE void put(float *at, V value, V factor, Mask some, int is_first) {
    if (!is_first) value = value + v_load_some(at, some);
    v_store_some(at, value * factor, some);
}

// Sums of values by the weights of some rows, times `factors`. Long sums are made of sums of PART keys.
INLINE void gather(int num, const Call *call, float *out, const float *scores, const float factors[], ptrdiff_t from,
                   ptrdiff_t to, ptrdiff_t step, ptrdiff_t num_keys) {
    const ptrdiff_t out_step = call->heads * call->size;
    for (ptrdiff_t col = 0; col < call->size; col += COLS) {
        const Mask left = mask_of(call->size - col), right = mask_of(call->size - col - W);
        const int full = call->size - col >= COLS;
        ptrdiff_t first = from, last;
        do {
            last = least(to, (first / PART + 1) * PART);
            V sums[ROWS][2];
            for (int r = 0; r < num; r++) sums[r][0] = sums[r][1] = v_all(0);
            const float *values = call->values + col * num_keys + first * COLS;
            multiply(num, 0, sums, scores + first, step, values, last - first);
            for (int r = 0; r < num; r++) {
                float *at = out + r * out_step + col;
                const V factor = v_all(last == to ? factors[r] : 1.0f);
                if (full && first == from) {
                    v_store(at, sums[r][0] * factor);
                    v_store(at + W, sums[r][1] * factor);
                } else {
                    put(at, sums[r][0], factor, left, first == from);
                    put(at + W, sums[r][1], factor, right, first == from);
                }
            }
            first = last;
        } while (first < to);
    }
}

// The largest of some scores, in any lane; whole vectors, from a whole vector on, are read.
INLINE V most_of(const float *scores, ptrdiff_t from, ptrdiff_t to) {
    const V lowest = v_all(-INFINITY);
    V most = lowest;
    ptrdiff_t i = from / W * W;
    if (i < from) most = v_or(v_or(v_load(scores + i), mask_of(to - i), lowest), mask_from(from - i), lowest), i += W;
    for (; i + W <= to; i += W) most = v_max(most, v_load(scores + i));
    if (i < to) most = v_max(most, v_or(v_load(scores + i), mask_of(to - i), lowest));
    return most;
}

// A vector of scores, of which the lanes `from` to `to` become weights and the others zero.
INLINE V some_to_weights(float *scores, V factor, V largest, ptrdiff_t from, ptrdiff_t to) {
    V x[TOGETHER] = {(v_load(scores) - largest) * factor};
    v_powers(1, x);
    x[0] = v_only(v_only(x[0], mask_of(to)), mask_from(from));
    v_store(scores, x[0]);
    return x[0];
}

// The scores of a row become weights, those beside them in the outermost vectors zero; their sum, in parts.
INLINE V row_to_weights(float *scores, float scale, float most, ptrdiff_t from, ptrdiff_t to) {
    const V largest = v_all(most), factor = v_all(scale * LOG2_E);
    V sum = v_all(0);
    ptrdiff_t i = from / W * W;
    if (i < from) sum = some_to_weights(scores + i, factor, largest, from - i, to - i), i += W;
    for (; i + TOGETHER * W <= to; i += TOGETHER * W) sum = to_weights(TOGETHER, scores + i, W, factor, largest, sum);
    for (; i + 2 * W <= to; i += 2 * W) sum = to_weights(2, scores + i, W, factor, largest, sum);
    for (; i + W <= to; i += W) sum = to_weights(1, scores + i, W, factor, largest, sum);
    if (i < to) sum = sum + some_to_weights(scores + i, factor, largest, 0, to - i);
    return sum;
}

// Of each row, scores of the keys `from` to `to` become weights, those of others up to `begin` and `end` zero; the
// reciprocals of the sums. All rows take each step before the next, so that none waits for another's chain.
static void weigh(float factors[W], ptrdiff_t count, float *scores, ptrdiff_t step, float scale, ptrdiff_t begin,
                  const ptrdiff_t from[], const ptrdiff_t to[], ptrdiff_t end) {
    V rows[W];
    for (ptrdiff_t r = 0; r < W; r++) rows[r] = v_all(1);
    float largest[W];
    for (ptrdiff_t r = 0; r < count; r++) rows[r] = most_of(scores + r * step, from[r], to[r]);
    v_store(largest, v_largest_of(rows));
    for (ptrdiff_t r = 0; r < count; r++) {
        float *row = scores + r * step;
        for (ptrdiff_t i = begin / W * W; i + W <= from[r]; i += W) v_store(row + i, v_all(0));
        rows[r] = row_to_weights(row, scale, largest[r], from[r], to[r]);
        for (ptrdiff_t i = whole(to[r], W); i < end; i += W) v_store(row + i, v_all(0));
    }
    v_store(factors, v_all(1) / v_sum_of(rows));
}

// The keys `*from` to `*to` that a query at `position` sees.
static void seen(const Call *call, ptrdiff_t position, ptrdiff_t num_keys, ptrdiff_t *from, ptrdiff_t *to) {
    *from = 0, *to = num_keys;
    if (call->causal && position + 1 < *to) *to = position + 1;
    if (call->window >= 0) {
        if (position - call->window > 0) *from = position - call->window;
        if (position + call->window + 1 < *to) *to = position + call->window + 1;
    }
    if (*from > *to) *from = *to;
}

// Fetches one head of some rows. It lies in a few lines of each, so far apart that no cache foresees them.
INLINE void fetch(const float *rows, ptrdiff_t step, ptrdiff_t num, ptrdiff_t size) {
    for (ptrdiff_t row = 0; row < num; row++)
        for (ptrdiff_t i = 0; i < size; i += 16) __builtin_prefetch(rows + row * step + i);
}

// The first key and value of a head.
typedef struct {
    const float *key, *value;
} Head;

// While some rows of a head are computed, fetches those after them, and as many keys and values of the next head, if
// that is not null.
INLINE void fetch_ahead(const Call *call, const float *queries, const Head *next, ptrdiff_t first, ptrdiff_t count,
                        ptrdiff_t num_rows, ptrdiff_t num_keys) {
    fetch(queries + count * call->query_step, call->query_step, least(count, num_rows - first - count), call->size);
    if (!next) return;
    const ptrdiff_t num = least(count, num_keys - first);
    fetch(next->key + first * call->key_step, call->key_step, num, call->size);
    fetch(next->value + first * call->value_step, call->value_step, num, call->size);
}

// One head of one sequence, whose keys and values are in panels; `row` is its first query row, `offset` its position.
static void attend_head(const Call *call, ptrdiff_t head, ptrdiff_t row, ptrdiff_t num_rows, ptrdiff_t offset,
                        ptrdiff_t num_keys, const Head *next) {
    const ptrdiff_t step = scores_step(num_keys);
    const int met = call->reach.tables != NULL;
    for (ptrdiff_t first = 0, count; first < num_rows; first += count) {
        // Of all that are left, so that the last are not a few, which would wait for their own sums.
        count = evenly(num_rows - first);
        ptrdiff_t from[ROWS], to[ROWS], begin = num_keys, end = 0;
        for (ptrdiff_t r = 0; r < count; r++) {
            const ptrdiff_t at = first + r;
            seen(call, call->positions ? call->positions[row + at] : offset + at, num_keys, from + r, to + r);
            begin = least(begin, from[r]);
            if (to[r] > end) end = to[r];
        }
        const float *query = call->query + (row + first) * call->query_step + head * call->size;
        float *scores = met ? call->scores + first * step : call->scores;
        if (met && call->reach.tables->keys)
            meet_queries(&call->reach, head, scores, step, call->reach.tables->queries != NULL, offset + first, count, query,
                         call->query_step, num_keys, call->size);
        fetch_ahead(call, query, next, first, count, num_rows, num_keys);
#define SCORE(n) \
    product(n, met, scores, step, query, call->query_step, call->keys, call->size, begin / W * W, end);
        FOR_ROWS(count, SCORE)
        float factors[W];
        weigh(factors, count, scores, step, call->scale, begin, from, to, end);
        float *out = call->out + ((row + first) * call->heads + head) * call->size;
#define GATHER(n) gather(n, call, out, scores, factors, begin, end, step, num_keys);
        FOR_ROWS(count, GATHER)
    }
}

// The same where tokens meet distances too, in blocks of rows whose positions follow each other.
static void attend_head_and_distances(const Call *call, ptrdiff_t head, ptrdiff_t row, ptrdiff_t num_rows,
                                      ptrdiff_t offset, ptrdiff_t num_keys) {
    for (ptrdiff_t first = 0, count; first < num_rows; first += count) {
        const int64_t *positions = call->positions ? call->positions + row + first : NULL;
        const ptrdiff_t position = positions ? positions[0] : offset + first, most = least(BLOCK, num_rows - first);
        count = positions ? 1 : most;
        while (count < most && positions[count] == position + count) count++;
        if (call->reach.tables->queries)
            meet_keys(&call->reach, head, call->scores, scores_step(num_keys), position, count, call->keys, num_keys,
                      call->size);
        attend_head(call, head, row + first, count, position, num_keys, NULL);
    }
}

static void attend_seq(const Call *call, const Run *run, ptrdiff_t seq) {
    const ptrdiff_t key_row = run->key_start + seq * run->num_tokens, row = run->query_start + seq * run->query_len;
    const ptrdiff_t share = call->heads / call->key_heads;
    const int sees_all = call->window < 0 || call->window >= run->num_tokens - 1;
    const int plain = !call->causal && sees_all && !call->reach.tables;
    if (plain && 0 < run->key_len && run->key_len <= FEW_KEYS && call->size % COLS == 0) {
        const ptrdiff_t out_step = call->heads * call->size;
        const Few few = {call->out + row * out_step,
                         call->query + row * call->query_step,
                         call->key + key_row * call->key_step,
                         call->value + key_row * call->value_step,
                         out_step, call->query_step, call->key_step, call->value_step,
                         run->query_len, run->key_len, call->heads, share, call->size, call->scale};
        attend_few_keys(&few, call->keys);
        return;
    }
    for (ptrdiff_t shared = 0; shared < call->key_heads; shared++) {
        const ptrdiff_t at = shared * call->size;
        const Head own = {call->key + key_row * call->key_step + at, call->value + key_row * call->value_step + at};
        const Head next = {own.key + call->size, own.value + call->size};
        turn(call->keys, own.key, call->key_step, run->key_len, call->size);
        copy_values(call->values, own.value, call->value_step, run->key_len, call->size);
        for (ptrdiff_t head = shared * share; head < (shared + 1) * share; head++) {
            const ptrdiff_t offset = run->num_tokens - run->query_len;
            if (call->reach.tables) {
                attend_head_and_distances(call, head, row, run->query_len, offset, run->key_len);
            } else {
                const int fetches = head == shared * share && shared + 1 < call->key_heads;
                attend_head(call, head, row, run->query_len, offset, run->key_len, fetches ? &next : NULL);
            }
        }
    }
}

// Rows of queries, keys and values start so many floats apart, and their heads lie side by side. The rows of `out` have
// no space between them. Returns 0, or 1 where there is no memory.
__attribute__((visibility("default"))) int JOINED(attend, ISA)(
    float *out, const float *query, const float *key, const float *value, ptrdiff_t query_step, ptrdiff_t key_step,
    ptrdiff_t value_step, ptrdiff_t heads, ptrdiff_t key_heads, ptrdiff_t size, float scale, int causal,
    ptrdiff_t window, const int64_t *positions, const int32_t *runs, ptrdiff_t num_runs, const Distances *distances) {
    const Run *all = (const Run *)runs;
    ptrdiff_t longest = 0, tokens = 0;
    for (ptrdiff_t i = 0; i < num_runs; i++) {
        if (all[i].key_len > longest) longest = all[i].key_len;
        if (all[i].num_tokens > tokens) tokens = all[i].num_tokens;
    }
    const ptrdiff_t of_keys = whole(longest, COLS) * size, of_values = longest * whole(size, COLS);
    const ptrdiff_t of_scores = (distances ? BLOCK : ROWS) * scores_step(longest);
    const ptrdiff_t of_distances = distances ? reach_room(distances, tokens) : 0;
    float *memory = NULL;
    ptrdiff_t num = of_keys + of_values + of_scores + of_distances;
    if (num < few_keys_room(size)) num = few_keys_room(size);
    if (posix_memalign((void **)&memory, 64, (size_t)num * sizeof(float))) return 1;
    Call call = {out, query, key, value, query_step, key_step, value_step, heads, key_heads, size, scale, causal, window,
                 positions, memory, memory + of_keys, memory + of_keys + of_values, {0}};
    if (distances) call.reach = reach_in(memory + of_keys + of_values + of_scores, distances, tokens);
    for (ptrdiff_t i = 0; i < num_runs; i++)
        for (ptrdiff_t seq = 0; seq < all[i].num_seqs; seq++) attend_seq(&call, all + i, seq);
    free(memory);
    return 0;
}
