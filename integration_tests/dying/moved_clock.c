/* Moves the wall clock of Python processes, which load it with LD_PRELOAD. ``campaign.moved_clocks`` compiles it.
 *
 * The file STREAMGROUPS_CLOCK has two numbers of 64 bits: the offset of the clock in seconds, which a campaign replaces while the
 * processes run, and the number of reads of the moved clock, which shows that they read it. Python's modules time and datetime
 * read clock_gettime and time. Monotonic clocks do not move.
 *
 * gettimeofday and timespec_get do not move: librdkafka computes the deadlines of pthread_cond_timedwait with them, which are times
 * of the kernel. A JVM keeps the right clock: Spark waits for its next trigger by the wall clock, so it stops for an hour after a
 * move back.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct moved {
    _Atomic int64_t offset_s;
    _Atomic int64_t reads;
};

typedef int (*get_time)(clockid_t, struct timespec *);
static struct moved unmoved;
static struct moved *shared = &unmoved;
static get_time next_clock_gettime;

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv("STREAMGROUPS_CLOCK");
    next_clock_gettime = (get_time)dlsym(RTLD_NEXT, "clock_gettime");
    if (path == NULL || strncmp(program_invocation_short_name, "python", 6) != 0)
        return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof(struct moved), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        shared = found;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = next_clock_gettime ? next_clock_gettime(clock, time) : (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t offset_s = atomic_load(&shared->offset_s);
        if (offset_s != 0) {
            time->tv_sec += offset_s;
            atomic_fetch_add(&shared->reads, 1);
        }
    }
    return result;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    if (seconds != NULL)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
