// Scores to weights, whose sum then divides: the exponentials of a softmax.

#ifndef CENOTE_WEIGHTS_H
#define CENOTE_WEIGHTS_H

#include "simd.h"

// Vectors that take each step together: one by one, those that wait for a chain would fill the queues of a core.
#define TOGETHER 4

// Base 2 takes half of what v_exp does of the units that products keep busy.
#define LOG2_E 0x1.715476p+0f

// `2^x`, where each of `num` vectors is at most 0; relative error 2e-7. Below -125 it stays at the smallest normal numbers,
// and NaN stays NaN. The polynomial is a fit as those of functions.h are, and 1 at 0.
INLINE void v_powers(int num, V x[TOGETHER]) {
    V moved[TOGETHER], rest[TOGETHER];
#define EACH _Pragma("GCC unroll 4") for (int i = 0; i < num; i++)
    EACH x[i] = v_max(v_all(-125.0f), x[i]);
    // The last bits of the sum are those of the nearest whole number.
    EACH moved[i] = x[i] + v_all(0x1.8p+23f);
    EACH rest[i] = x[i] - (moved[i] - v_all(0x1.8p+23f));
    EACH x[i] = v_fma(v_all(1.326472725e-3f), rest[i], v_all(9.671512688e-3f));
    EACH x[i] = v_fma(x[i], rest[i], v_all(5.550733744e-2f));
    EACH x[i] = v_fma(x[i], rest[i], v_all(2.402224208e-1f));
    EACH x[i] = v_fma(x[i], rest[i], v_all(6.931469776e-1f));
    EACH x[i] = v_fma(x[i], rest[i], v_all(1.0f));
    EACH x[i] = v_scaled_by_bits(x[i], moved[i]);
}

// `num` vectors of scores, `step` floats apart, become `2^(factor (score - largest))`. Returns `sum` with them added.
INLINE V to_weights(int num, float *scores, ptrdiff_t step, V factor, V largest, V sum) {
    V x[TOGETHER];
    EACH x[i] = (v_load(scores + i * step) - largest) * factor;
    v_powers(num, x);
    EACH v_store(scores + i * step, x[i]);
    EACH sum = sum + x[i];
    return sum;
}
#undef EACH

#endif
