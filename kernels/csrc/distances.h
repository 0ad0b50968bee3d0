// Scores of tokens with distances (disentangled attention, He et al. 2020, arXiv 2006.03654), before they are scaled.
//
// A query row meets the keys of distances, and a key the queries of distances. Distances share rows of tables, so the
// products are of tokens and rows; each score is then read off its row. A distance is that of a key ahead of a query,
// and rows ascend with it: what neighbouring keys take from a query's products lies side by side, unless they share it.

#ifndef CENOTE_DISTANCES_H
#define CENOTE_DISTANCES_H

#include "tile.h"

// Query rows whose scores with the queries of distances are held at once. Each block computes the products of all keys
// with its distances, many of which are those of the block before, so few large ones are best.
#define BLOCK 336
_Static_assert(BLOCK % ROWS == 0 && BLOCK % W == 0, "whole tiles, and whole squares to skew");

// As Python's `Distances`; `keys` or `queries` may be null.
typedef struct Distances {
    const float *keys;    // of each head, `step` floats apart, panels of all rows
    const float *queries; // `[heads, num, size]`
    const int32_t *rows;  // of the distances -far to far; those beyond have the outermost
    int64_t num, far, step;
} Distances;

// What one call makes of them, and its room.
typedef struct {
    const Distances *tables;
    const int32_t *rows; // of a distance, which may be negative
    ptrdiff_t low, high; // between these, each distance has the row after that of the one before
    float *products;
} Reach;

// How far from zero `Reach.rows` goes, for texts of up to `longest` tokens.
INLINE ptrdiff_t reach_of(ptrdiff_t longest) { return whole(longest, COLS) + BLOCK; }

// Between a row's products with the rows of a table, which begin with a whole panel.
INLINE ptrdiff_t products_step(const Distances *tables) { return whole(tables->num, COLS) + COLS; }

// Floats of room for a call.
INLINE ptrdiff_t reach_room(const Distances *tables, ptrdiff_t longest) {
    const ptrdiff_t of_rows = ROWS * products_step(tables), of_keys = COLS * tables->num;
    return 2 * reach_of(longest) + 1 + (of_rows > of_keys ? of_rows : of_keys);
}

static Reach reach_in(float *room, const Distances *tables, ptrdiff_t longest) {
    const ptrdiff_t most = reach_of(longest), far = tables->far;
    int32_t *rows = (int32_t *)room + most;
    for (ptrdiff_t away = -most; away <= most; away++)
        rows[away] = tables->rows[far + (away < -far ? -far : least(away, far))];
    ptrdiff_t low = 0, high = 0;
    while (low > -most && rows[low - 1] == rows[low] - 1) low--;
    while (high < most && rows[high + 1] == rows[high] + 1) high++;
    return (Reach){tables, rows, low, high, room + 2 * most + 1};
}

// W rows of which lane l is that of row l before, for keys one by one ahead: from `products[at[i]]`, the rows of W
// neighbouring distances more.
INLINE void skew(V v[W], const float *products, const int32_t *at) {
    V u[2 * W - 1 - W / 2];
#pragma GCC unroll 32
    for (int i = 0; i < 2 * W - 1 - W / 2; i++)
        u[i] = v_or(v_load(products + at[i + W / 2]), lanes_with(W / 2), v_load(products + at[i]));
#define MOVE(by) \
    _Pragma("GCC unroll 32") for (int i = 0; i < W - 1 + by; i++) u[i] = v_or(u[i + by], lanes_with(by), u[i]);
#if W == 16
    MOVE(4)
#endif
    MOVE(2)
    MOVE(1)
#undef MOVE
#pragma GCC unroll 32
    for (int i = 0; i < W; i++) v[i] = u[W - 1 - i];
}

// Scores of the keys in `panels` with the queries of distances, for `num` query rows from `position` on, at most BLOCK.
static void meet_keys(const Reach *reach, ptrdiff_t head, float *scores, ptrdiff_t step, ptrdiff_t position,
                      ptrdiff_t num, const float *panels, ptrdiff_t num_keys, ptrdiff_t size) {
    const float *table = reach->tables->queries + head * reach->tables->num * size;
    int32_t at[BLOCK + COLS];
    for (ptrdiff_t col = 0; col < num_keys; col += COLS) {
        // Of the distances of these keys the first and the last that are not of a filler, and their rows.
        const int32_t *rows = reach->rows + col - (position + whole(num, W) - 1);
        const int32_t first = reach->rows[col - (position + num - 1)];
        const int32_t last = reach->rows[least(col + COLS, num_keys) - 1 - position];
        for (ptrdiff_t row = first; row <= last; row += ROWS) {
            float *out = reach->products + (row - first) * COLS;
#define MEET(n) product(n, 0, out, COLS, table + row * size, size, panels + col * size, size, 0, COLS);
            FOR_ROWS(least(ROWS, last + 1 - row), MEET)
#undef MEET
        }
        const ptrdiff_t away = whole(num, W) + COLS - 1;
        for (ptrdiff_t i = 0; i < away; i++)
            at[i] = ((rows[i] < first ? first : rows[i] > last ? last : rows[i]) - first) * COLS;
        for (ptrdiff_t left = 0; left < COLS && col + left < num_keys; left += W)
            for (ptrdiff_t row = 0; row < num; row += W) {
                V v[W];
                skew(v, reach->products + left, at + left + whole(num, W) - W - row);
                for (int i = 0; i < W; i++) v_store(scores + (row + i) * step + col + left, v[i]);
            }
    }
}

// Adds the scores of up to ROWS query rows from `position` on with the keys of distances; `more` says to what is there.
static void meet_queries(const Reach *reach, ptrdiff_t head, float *scores, ptrdiff_t step, int more,
                         ptrdiff_t position, ptrdiff_t num, const float *query, ptrdiff_t query_step, ptrdiff_t num_keys,
                         ptrdiff_t size) {
    const Distances *tables = reach->tables;
    const ptrdiff_t products = products_step(tables);
    const ptrdiff_t from = reach->rows[1 - position - num] / COLS * COLS, to = reach->rows[num_keys - 1 - position] + 1;
#define MEET(n) \
    product(n, 0, reach->products, products, query, query_step, tables->keys + head * tables->step + from * size, size, 0, \
            to - from);
    FOR_ROWS(num, MEET)
#undef MEET
    for (ptrdiff_t row = 0; row < num; row++, scores += step) {
        const float *own = reach->products + row * products - from;
        const ptrdiff_t behind = -(position + row);
        for (ptrdiff_t key = 0; key < num_keys; key += W) {
            const ptrdiff_t away = behind + key;
            const int32_t *rows = reach->rows + away;
            const int in_turn = away >= reach->low && away + W - 1 <= reach->high;
            V score = in_turn ? v_load(own + *rows) : v_gather(own, rows);
            if (more) score = score + v_load(scores + key);
            v_store(scores + key, score);
        }
    }
}

#endif
