// Elementary functions of vectors, to float32 accuracy. NaN stays NaN.
//
// The polynomials are least-maximum fits (Lawson's iteration) of their functions on the interval named beside them.

#ifndef CENOTE_FUNCTIONS_H
#define CENOTE_FUNCTIONS_H

#include "simd.h"

// `e^x`; relative error 1e-7. Below -87 it stays at the smallest normal numbers, above 88 at the largest.
INLINE V v_exp(V x) {
    x = v_min(v_all(88.0f), v_max(v_all(-87.0f), x));
    const V n = v_round(x * v_all(0x1.715476p+0f));
    // ln 2 in two parts, so that nothing is lost of the rest, which is at most half of ln 2.
    const V rest = v_fma(n, v_all(0x1.05c61p-29f), v_fma(n, v_all(-0x1.62e43p-1f), x));
    V sum = v_all(1.381494424e-3f);
    sum = v_fma(sum, rest, v_all(8.368695287e-3f));
    sum = v_fma(sum, rest, v_all(4.166838579e-2f));
    sum = v_fma(sum, rest, v_all(1.666652081e-1f));
    sum = v_fma(sum, rest, v_all(4.999999342e-1f));
    sum = v_fma(sum, rest, v_all(1.0f));
    sum = v_fma(sum, rest, v_all(1.0f));
    return v_scaled(sum, n);
}

// `x * (1 + erf(x / sqrt 2)) / 2`, the exact GELU; error 2e-7 of |x|, or of 1 near zero.
#if W == 16
// The larger of 0 and x, less a function of |x|, for which each of twelve pieces around a half has a polynomial. That
// takes five products of those units that linear layers keep busy, where one polynomial for all takes twenty.
INLINE V v_gelu(V x) {
    static const float coefficients[6][W] __attribute__((aligned(64))) = {
        {-6.629704032e-03f, -2.206294425e-02f, -1.597579941e-02f, 2.547611017e-03f, 8.861699142e-03f, 4.285081290e-03f,
         4.522792005e-05f, -8.347591502e-04f, -4.395455180e-04f, -1.257178956e-04f, -2.365666660e-05f, -3.126034471e-06f},
        {6.807771325e-02f, 3.363899142e-02f, -1.960333996e-02f, -3.563397005e-02f, -1.803615503e-02f, -6.835905369e-04f,
         3.989527468e-03f, 2.488519764e-03f, 8.391228039e-04f, 1.871238055e-04f, 2.947281064e-05f, 3.382389195e-06f},
        {-1.589353924e-04f, 1.100056842e-01f, 1.209795997e-01f, 5.667075887e-02f, 4.960641490e-06f, -1.643340848e-02f,
         -1.108129602e-02f, -4.200265277e-03f, -1.070554834e-03f, -1.947033452e-04f, -2.598557876e-05f, -2.585398988e-06f},
        {-3.989368081e-01f, -3.080505431e-01f, -1.209984496e-01f, 1.617904380e-02f, 5.399184301e-02f, 3.725187853e-02f,
         1.551318169e-02f, 4.472397268e-03f, 9.364879224e-04f, 1.457162871e-04f, 1.706552939e-05f, 1.516312523e-06f},
        {5.000000000e-01f, 1.325050145e-01f, -8.331541717e-02f, -1.274692565e-01f, -8.523184806e-02f, -3.761107847e-02f,
         -1.194563042e-02f, -2.821755828e-03f, -5.036505172e-04f, -6.853013474e-05f, -7.147262295e-06f, -5.734073625e-07f},
        {0, 1.542687416e-01f, 1.586553007e-01f, 1.002108380e-01f, 4.550025985e-02f, 1.552414894e-02f,
         4.049688112e-03f, 8.142021252e-04f, 1.266860927e-04f, 1.528999928e-05f, 1.433368311e-06f, 1.044597155e-07f},
    };
    // From this limit on the function is 0, so that large |x| give exactly 0 and x.
    const V size = v_size_below(x, v_all(6.0f));
    // The last bits of the sum count the halves.
    const V moved = size + v_all(0x1.8p+22f);
    const V rest = size - (moved - v_all(0x1.8p+22f));
    V less = v_picked(coefficients[0], moved);
#pragma GCC unroll 8
    for (int i = 1; i < 6; i++) less = v_fma(less, rest, v_picked(coefficients[i], moved));
    return v_max(v_all(0), x) - less;
}
#else
INLINE V v_gelu(V x) {
    // At this limit the product below is exactly a half, so that large |x| give exactly 0 and x.
    const V limit = v_all(0x1.61d6a8p+2f);
    const V near = v_min(limit, v_max(v_all(0) - limit, x));
    // The share of x that stays, less a half, over x: a polynomial of its square, moved to -1 to 1.
    const V s = v_fma(near * near, v_all(6.574621959e-2f), v_all(-1.0f));
    static const float coefficients[] = {
        5.594931054e-4f,  -1.429771295e-3f, 1.062608509e-3f, -1.228759826e-3f, 4.310237347e-3f,
        -7.833554188e-3f, 1.060632163e-2f,  -1.477242651e-2f, 2.037611682e-2f, -2.616228431e-2f,
        3.207110584e-2f,  -3.871963390e-2f, 4.761969096e-2f,  -6.399722870e-2f, 1.281928001e-1f,
    };
    // Even and odd powers by themselves: two chains of half the length.
    const V square = s * s;
    V even = v_all(coefficients[0]), odd = v_all(coefficients[1]);
#pragma GCC unroll 8
    for (int i = 2; i < 14; i += 2) {
        even = v_fma(even, square, v_all(coefficients[i]));
        odd = v_fma(odd, square, v_all(coefficients[i + 1]));
    }
    even = v_fma(even, square, v_all(coefficients[14]));
    const V sum = v_fma(odd, s, even);
    return x * (sum * near + v_all(0.5f));
}
#endif

// GELU for what is rounded to 8 bits next; error 5e-6.
#if W == 16
// As above, in sixteen pieces around the multiples of 0.33, with powers of |x| itself.
INLINE V v_gelu_for_codes(V x) {
    static const float coefficients[4][W] __attribute__((aligned(64))) = {
        {2.092609555e-02f, 8.014353365e-02f, 1.248462424e-01f, 1.211048067e-01f, 8.277172595e-02f, 3.618519753e-02f,
         1.843584352e-03f, -1.397382375e-02f, -1.587118953e-02f, -1.156022772e-02f, -6.559907924e-03f,
         -3.079730086e-03f, -1.229231944e-03f, -4.233859072e-04f, -1.270004432e-04f, 0},
        {-4.009361565e-01f, -4.351837337e-01f, -4.977612197e-01f, -4.848299623e-01f, -3.502503037e-01f,
         -1.430582255e-01f, 4.248150811e-02f, 1.428585351e-01f, 1.561438441e-01f, 1.196418926e-01f, 7.269039005e-02f,
         3.665966168e-02f, 1.570182666e-02f, 5.788742565e-03f, 1.852956600e-03f, 0},
        {5.000540614e-01f, 5.070705414e-01f, 5.367612243e-01f, 5.230255723e-01f, 3.650583327e-01f, 5.728155747e-02f,
         -2.773037255e-01f, -4.898120463e-01f, -5.207388997e-01f, -4.176647365e-01f, -2.706451416e-01f,
         -1.462561786e-01f, -6.711327285e-02f, -2.645485662e-02f, -9.029848501e-03f, 0},
        {0, -4.956133780e-04f, -5.278028548e-03f, -6.433695089e-04f, 6.134122983e-02f, 2.140439600e-01f,
         4.154344797e-01f, 5.655314922e-01f, 5.894597769e-01f, 4.923927784e-01f, 3.388690054e-01f, 1.956735700e-01f,
         9.602135420e-02f, 4.042086378e-02f, 1.470016222e-02f, 0},
    };
    const V size = v_size_below(x, v_all(4.95f)), at = v_fma(size, v_all(1 / 0.33f), v_all(0x1.8p+23f));
    V less = v_picked(coefficients[0], at);
#pragma GCC unroll 4
    for (int i = 1; i < 4; i++) less = v_fma(less, size, v_picked(coefficients[i], at));
    return v_max(v_all(0), x) - less;
}
#else
INLINE V v_gelu_for_codes(V x) { return v_gelu(x); }
#endif

INLINE V v_sigmoid(V x) { return v_all(1.0f) / (v_all(1.0f) + v_exp(v_all(0) - x)); }

INLINE V v_silu(V x) { return x / (v_all(1.0f) + v_exp(v_all(0) - x)); }

// GELU by its approximation with tanh (Hendrycks and Gimpel 2016), since `(1 + tanh y) / 2` is the sigmoid of 2 y.
INLINE V v_gelu_tanh(V x) {
    const V inner = v_fma(x * x, v_all(2 * 0.7978845608f * 0.044715f), v_all(2 * 0.7978845608f));
    return x / (v_all(1.0f) + v_exp(v_all(0) - x * inner));
}

INLINE V v_tanh(V x) {
    const V square = x * x;
    V sum = v_fma(v_all(1.873837092e-2f), square, v_all(-5.356000429e-2f));
    sum = v_fma(sum, square, v_all(1.333119354e-1f));
    sum = v_fma(sum, square, v_all(-3.333329804e-1f));
    const V near = v_fma(x * square, sum, x); // up to 0.4
    const V far = v_all(1.0f) - v_all(2.0f) / (v_exp(x + x) + v_all(1.0f));
    return v_where_less(v_abs(x), v_all(0.4f), near, far);
}

INLINE V v_relu(V x) { return v_max(v_all(0), x); }

#endif
