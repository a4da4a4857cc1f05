/* A clock of its own for one process, loaded with LD_PRELOAD: what chronyd and ptp4l read, stamp
 * packets with and discipline is this clock; the machine's is never touched. Its oscillator is a
 * synthetic clock (native/common/syn_clock.h). What the process has made of it is published in a
 * shared file, so that the clock's error can be read at any instant from outside.
 *
 *   SHIM_STATE       file of at least 32 bytes: seq, base_osc_ns, base_ns, rate_ppb (double)
 *   SHIM_OSCILLATOR  base_ns:drift_ppb:wander_ppb:seed
 */
#include "syn_clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL
#define NOMINAL_TICK_US 10000
#define MAX_ERROR_US 16000000 /* what the kernel's NTP_PHASE_LIMIT makes of it after a step */
#define KERNEL_PPM 65536.0 /* struct timex.freq: ppm with 16 binary digits (adjtimex(2)) */

struct state {
    _Atomic uint64_t seq; /* odd while it is being changed */
    int64_t base_osc_ns; /* when the oscillator read this ... */
    int64_t base_ns;     /* ... the clock read this */
    double rate_ppb;     /* and ran so much faster from there */
};

static struct state *state;
static struct syn_clock *oscillator;
static long freq, tick = NOMINAL_TICK_US, max_error_us;
static int status = STA_UNSYNC;

static int (*real_gettime)(clockid_t, struct timespec *);
static ssize_t (*real_recvmsg)(int, struct msghdr *, int);
static int (*real_recvmmsg)(int, struct mmsghdr *, unsigned, int, struct timespec *);

static int64_t oscillator_now(void)
{
    struct timespec t;
    real_gettime(CLOCK_REALTIME, &t);
    return syn_clock_map(oscillator, t.tv_sec * NS + t.tv_nsec);
}

static int64_t steered(int64_t osc_ns)
{
    int64_t since = osc_ns - state->base_osc_ns;
    return state->base_ns + since + (int64_t)(state->rate_ppb * 1e-9 * (double)since);
}

static void publish(int64_t osc_ns, int64_t clock_ns, double rate_ppb)
{
    atomic_fetch_add(&state->seq, 1);
    state->base_osc_ns = osc_ns;
    state->base_ns = clock_ns;
    state->rate_ppb = rate_ppb;
    atomic_fetch_add(&state->seq, 1);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SHIM_STATE"), *text = getenv("SHIM_OSCILLATOR");
    long long base_ns = 0;
    unsigned long long seed = 0;
    struct syn_clock_spec spec = {.swing_period_ns = NS};
    *(void **)&real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    *(void **)&real_recvmsg = dlsym(RTLD_NEXT, "recvmsg");
    *(void **)&real_recvmmsg = dlsym(RTLD_NEXT, "recvmmsg");
    if (!text ||
        sscanf(text, "%lld:%lf:%lf:%llu", &base_ns, &spec.drift_ppb, &spec.wander_ppb, &seed) != 4)
        abort();
    spec.base_ns = base_ns;
    spec.seed = seed;
    oscillator = syn_clock_open(&spec, NULL, 0);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (!oscillator || fd < 0)
        abort();
    void *map = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        abort();
    state = map;
    close(fd);
    int64_t now = oscillator_now();
    publish(now, now, 0);
}

static void map_timespec(struct timespec *t)
{
    int64_t ns = steered(syn_clock_map(oscillator, t->tv_sec * NS + t->tv_nsec));
    t->tv_sec = ns / NS;
    t->tv_nsec = ns % NS;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!state) /* called by another library's constructor, before ours */
        return (int)syscall(SYS_clock_gettime, clock, t);
    int result = real_gettime(clock, t);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        map_timespec(t);
    return result;
}

time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}

int settimeofday(const struct timeval *value, const struct timezone *zone)
{
    (void)zone;
    publish(oscillator_now(), value->tv_sec * NS + value->tv_usec * 1000, state->rate_ppb);
    return 0;
}

static int adjust(struct timex *t)
{
    int64_t now = oscillator_now(), clock_ns = steered(now);
    if (!(t->modes & 0x8000)) { /* not the old adjtime() single shot, of which there is none */
        if (t->modes & ADJ_FREQUENCY)
            freq = t->freq;
        if (t->modes & ADJ_TICK)
            tick = t->tick;
        if (t->modes & ADJ_STATUS)
            status = t->status;
        if (t->modes & ADJ_MAXERROR)
            max_error_us = t->maxerror;
        if (t->modes & ADJ_SETOFFSET) {
            clock_ns += t->time.tv_sec * NS + t->time.tv_usec * (t->modes & ADJ_NANO ? 1 : 1000);
            max_error_us = MAX_ERROR_US;
        }
        double ppm = (double)freq / KERNEL_PPM +
                     (double)(tick - NOMINAL_TICK_US) * (1e6 / NOMINAL_TICK_US);
        publish(now, clock_ns, ppm * 1e3);
    }
    t->offset = 0;
    t->freq = freq;
    t->tick = tick;
    t->status = status;
    t->maxerror = max_error_us;
    t->precision = 1;
    t->tolerance = (long)(500 * KERNEL_PPM);
    t->time.tv_sec = clock_ns / NS;
    t->time.tv_usec = clock_ns % NS / 1000;
    return TIME_OK;
}

int adjtimex(struct timex *t)
{
    return adjust(t);
}

int clock_adjtime(clockid_t clock, struct timex *t)
{
    if (clock != CLOCK_REALTIME) {
        errno = EINVAL;
        return -1;
    }
    return adjust(t);
}

static void map_stamps(struct msghdr *message)
{
    if (!message->msg_control)
        return;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        struct timespec t[3];
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SO_TIMESTAMPING && c->cmsg_len >= CMSG_LEN(sizeof t)) {
            memcpy(t, CMSG_DATA(c), sizeof t);
            if (t[0].tv_sec)
                map_timespec(&t[0]);
            memcpy(CMSG_DATA(c), t, sizeof t);
        } else if (c->cmsg_type == SO_TIMESTAMPNS && c->cmsg_len >= CMSG_LEN(sizeof t[0])) {
            memcpy(t, CMSG_DATA(c), sizeof t[0]);
            map_timespec(&t[0]);
            memcpy(CMSG_DATA(c), t, sizeof t[0]);
        } else if (c->cmsg_type == SO_TIMESTAMP && c->cmsg_len >= CMSG_LEN(sizeof(struct timeval))) {
            struct timeval v;
            memcpy(&v, CMSG_DATA(c), sizeof v);
            t[0] = (struct timespec){v.tv_sec, v.tv_usec * 1000};
            map_timespec(&t[0]);
            v = (struct timeval){t[0].tv_sec, t[0].tv_nsec / 1000};
            memcpy(CMSG_DATA(c), &v, sizeof v);
        }
    }
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t size = real_recvmsg(fd, message, flags);
    if (size >= 0)
        map_stamps(message);
    return size;
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
    int got = real_recvmmsg(fd, messages, count, flags, timeout);
    for (int i = 0; i < got; i++)
        map_stamps(&messages[i].msg_hdr);
    return got;
}
