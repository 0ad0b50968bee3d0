// Chunks of work shared out between the calling thread and helpers on further cores.
//
// A thread that has begun to spread (`spread_begin` in `team.c`) is helped in each `spread` until it ends. For all other
// threads `spread` is a loop, so that the same code serves both, and its results are the same.

#ifndef CENOTE_TEAM_H
#define CENOTE_TEAM_H

#include <stddef.h>

// One chunk of `what`; no two members of the team, of which the calling thread is number 0, work on one chunk, and no
// member on two at once.
typedef void Work(const void *what, ptrdiff_t chunk, ptrdiff_t member);

// Does the chunks 0 to `chunks - 1`, in any order, and returns when all are done.
void spread(Work *work, const void *what, ptrdiff_t chunks);

// How many members may work on what this thread spreads; 1 where it is alone.
ptrdiff_t team_size(void);

#endif
