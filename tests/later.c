/* The host's clock, CLOCK_SHIFT_S seconds later, for programs started with LD_PRELOAD: tests/later.py.
   CLOCK_SHIFT_FILE names a file of eight bytes that holds the seconds instead: the clock of running programs jumps. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static long shift_s(void) {
    static const volatile long *shared;
    const char *shift = getenv("CLOCK_SHIFT_S"), *file = getenv("CLOCK_SHIFT_FILE");
    if (!file) return shift ? atol(shift) : 0;
    if (!shared) {
        void *mapped = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, open(file, O_RDONLY), 0);
        if (mapped != MAP_FAILED) shared = mapped;
    }
    return shared ? *shared : 0;
}

int clock_gettime(clockid_t id, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(id, out);
    if (id == CLOCK_REALTIME) out->tv_sec += shift_s();
    return status;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return status;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
