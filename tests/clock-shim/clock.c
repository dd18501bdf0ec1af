/* A clock that is wrong, for the process that this is loaded into (LD_PRELOAD).
 *
 * CLOCK_OFFSET names a file of eight bytes: nanoseconds that are added to the time of day, in this machine's byte order.
 * Whoever writes to it sets the clock while the process runs. Clocks that only measure durations stay true, as they do
 * on a machine whose administrator, or whose time server, sets the time. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void find_offset(void) {
    const char *path = getenv("CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *place = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (place != MAP_FAILED)
        offset = place;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    /* The kernel itself is asked: to look for libc's own function may allocate memory, and an allocator may ask the time. */
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t second = 1000000000;
        int64_t sum = (int64_t)time->tv_nsec + *offset % second;
        int64_t carry = sum < 0 ? -1 : sum / second;
        time->tv_sec += *offset / second + carry;
        time->tv_nsec = sum - carry * second;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    time->tv_sec = precise.tv_sec;
    time->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *told) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (told)
        *told = precise.tv_sec;
    return precise.tv_sec;
}
