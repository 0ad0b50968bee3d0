// The team of helpers: a thread for each further core, made at first use and kept.
//
// Each member has chunks of its own, neighbours, so that what one fetches ahead it reads itself. Whoever has done its own
// takes those of others, so that nobody waits for a helper that is asleep or has lost its core, but for the one chunk that
// it holds. Where that takes long, other processes have the cores, and for a while nothing is spread.
// Helpers spin while a thread spreads, since between two products there is less time than it takes to wake one, and sleep
// soon after. One thread has the team at a time.

#define _GNU_SOURCE
#include "team.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

// How long a helper spins without work: while somebody spreads, and after that.
#define SPIN_NS 1000000
#define LINGER_NS 300000
// How often it pauses before it looks at the clock, and how often it does that before it lets others have its core, which may
// be the one of the thread that spreads; and how often a thread that waits for others pauses before it does so.
#define PAUSES 32
#define LOOKS 8
#define PATIENCE 2000
// Helpers, and chunks of a job; what has more chunks is a loop.
#define MOST 63
#define MOST_CHUNKS 0xffff
// How long a thread waits for the last chunks before it counts as held up, and how long it is alone after that.
#define HELD_UP_NS 1000000
#define REST_NS 1000000000
#define STACK (1024 * 1024)

// The chunks of the job that each member has left to take: `number of the job << 32 | first << 16 | end`. What describes a
// job is written while none are left, so whoever takes a chunk has read what belongs to it. `job_number` changes after them.
static struct {
    _Alignas(64) _Atomic uint64_t left;
} shares[MOST + 1];
static _Alignas(64) _Atomic uint32_t job_number;
static _Atomic(Work *) job_work;
static _Atomic(const void *) job_what;
static _Atomic uint32_t job_members;
static _Alignas(64) _Atomic int64_t unfinished;
static _Alignas(64) _Atomic int32_t bell;  // rung to wake those asleep
static _Atomic int32_t asleep;
static _Atomic int busy;  // whether a thread has the team
// Changed by that thread alone:
static int helpers;
static int64_t rests_until_ns;

static _Thread_local int members;  // of the team that this thread has; 0 for none

static void ring(void) {
    if (atomic_load(&asleep) && atomic_exchange(&asleep, 0)) {
        atomic_fetch_add(&bell, 1);
        syscall(SYS_futex, &bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

// Works on what is left of the chunks of a member, as another member from the last one on; returns how many.
static int64_t work_on_share(ptrdiff_t of, ptrdiff_t member) {
    int64_t done = 0;
    uint64_t now = atomic_load_explicit(&shares[of].left, memory_order_acquire);
    for (;;) {
        const uint32_t first = now >> 16 & MOST_CHUNKS, end = now & MOST_CHUNKS;
        if (first >= end) return done;
        Work *work = atomic_load_explicit(&job_work, memory_order_relaxed);
        const void *what = atomic_load_explicit(&job_what, memory_order_relaxed);
        const uint64_t then = of == member ? now + (1 << 16) : now - 1;
        if (!atomic_compare_exchange_weak_explicit(&shares[of].left, &now, then, memory_order_acq_rel, memory_order_acquire))
            continue;
        work(what, of == member ? first : end - 1, member);
        done++;
        now = atomic_load_explicit(&shares[of].left, memory_order_acquire);
    }
}

// Works on chunks until none are left, its own before those of others; returns whether there were any.
static int work_on_chunks(ptrdiff_t member) {
    const ptrdiff_t team = atomic_load_explicit(&job_members, memory_order_relaxed);
    int64_t done = 0;
    for (ptrdiff_t i = 0; i < team; i++) done += work_on_share((member + i) % team, member);
    if (done) atomic_fetch_sub_explicit(&unfinished, done, memory_order_release);
    return done > 0;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *help(void *number) {
    const ptrdiff_t member = (ptrdiff_t)number;
    unsigned looks = 0;
    for (int64_t since = now_ns();;) {
        const uint32_t job = atomic_load_explicit(&job_number, memory_order_acquire);
        if (work_on_chunks(member)) since = now_ns();
        for (int i = 0; i < PAUSES && atomic_load_explicit(&job_number, memory_order_relaxed) == job; i++)
            __builtin_ia32_pause();
        if (++looks % LOOKS == 0) sched_yield();
        if (now_ns() - since < (atomic_load_explicit(&busy, memory_order_relaxed) ? SPIN_NS : LINGER_NS)) continue;
        const int32_t heard = atomic_load(&bell);
        atomic_fetch_add(&asleep, 1);
        // Whoever begins a job after this look sees that somebody is asleep.
        if (atomic_load(&job_number) == job) syscall(SYS_futex, &bell, FUTEX_WAIT_PRIVATE, heard, NULL, NULL, 0);
        since = now_ns();
    }
    return NULL;
}

static void hire(int wanted) {
    pthread_attr_t how;
    sigset_t all, before;
    if (pthread_attr_init(&how)) return;
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&how, STACK);
    // Signals are for the threads that know what to do with them.
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    while (helpers < wanted && !pthread_create(&thread, &how, help, (void *)(ptrdiff_t)(helpers + 1))) {
        pthread_setname_np(thread, "cenote-helper");
        helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&how);
}

// A fork has only the thread that forked.
static void forget(void) {
    helpers = members = 0;
    rests_until_ns = 0;
    busy = 0;
    asleep = 0;
    for (int i = 0; i <= MOST; i++) shares[i].left = 0;
    unfinished = 0;
}

__attribute__((constructor)) static void heed_forks(void) { pthread_atfork(NULL, NULL, forget); }

// From now on this thread is helped, by `cores - 1` threads at most that are made here, and no more than there are further
// cores. Returns 0 where it is not, as there are none or another thread has the team; else it must call `spread_end`.
EXPORT int spread_begin(int cores) {
    if (cores < 2 || members || atomic_exchange(&busy, 1)) return 0;
    cpu_set_t allowed;
    if (helpers < cores - 1 && !sched_getaffinity(0, sizeof allowed, &allowed)) {
        const int others = CPU_COUNT(&allowed) - 1, wanted = cores - 1 < others ? cores - 1 : others;
        hire(wanted < MOST ? wanted : MOST);
    }
    if (!helpers || now_ns() < rests_until_ns) {
        atomic_store(&busy, 0);
        return 0;
    }
    members = helpers + 1;
    ring();
    return 1;
}

EXPORT void spread_end(void) {
    if (!members) return;
    members = 0;
    atomic_store(&busy, 0);
}

// Waits until all chunks are done; returns whether that took long.
static int wait_for_others(void) {
    int64_t since = 0;
    int is_late = 0;
    for (int i = 0; atomic_load_explicit(&unfinished, memory_order_acquire); i++) {
        __builtin_ia32_pause();
        if (i < PATIENCE) continue;
        const int64_t now = now_ns();
        if (!since) since = now;
        is_late = now - since > HELD_UP_NS;
        sched_yield();
    }
    return is_late;
}

ptrdiff_t team_size(void) { return members ? members : 1; }

void spread(Work *work, const void *what, ptrdiff_t chunks) {
    const int team = members;
    if (team < 2 || chunks < 2 || chunks > MOST_CHUNKS) {
        for (ptrdiff_t i = 0; i < chunks; i++) work(what, i, 0);
        return;
    }
    members = 0;  // what a chunk spreads is a loop
    atomic_store_explicit(&job_work, work, memory_order_relaxed);
    atomic_store_explicit(&job_what, what, memory_order_relaxed);
    atomic_store_explicit(&job_members, (uint32_t)team, memory_order_relaxed);
    atomic_store_explicit(&unfinished, chunks, memory_order_relaxed);
    const uint32_t job = atomic_load_explicit(&job_number, memory_order_relaxed) + 1;
    for (ptrdiff_t i = 0; i < team; i++) {
        const uint64_t first = (uint64_t)(chunks * i / team), end = (uint64_t)(chunks * (i + 1) / team);
        atomic_store_explicit(&shares[i].left, (uint64_t)job << 32 | first << 16 | end, memory_order_release);
    }
    atomic_store(&job_number, job);
    ring();
    work_on_chunks(0);
    const int is_late = wait_for_others();
    if (is_late) rests_until_ns = now_ns() + REST_NS;
    members = is_late ? 1 : team;
}
