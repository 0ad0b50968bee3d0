// What the CPU has, asked without using any of it.

#define EXPORT __attribute__((visibility("default")))

EXPORT int has_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

EXPORT int has_avx512(void) {
    __builtin_cpu_init();
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

EXPORT int has_avx512_vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
