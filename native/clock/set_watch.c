/* Steps of CLOCK_REALTIME as the kernel reports them: a timer that is never due is cancelled by each
 * way to set the clock (timerfd_create(2)): settimeofday, clock_settime, ADJ_SETOFFSET, a leap second. */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "syn_clock_page.h"

/* The kernel clamps what is later than the end of its time. */
static const int64_t NEVER_S = INT64_MAX / 1000000000 - 1;

static int arm(int fd)
{
    const struct itimerspec never = {.it_value = {.tv_sec = NEVER_S}};
    const int flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
    return timerfd_settime(fd, flags, &never, NULL) == 0 ? 0 : -errno;
}

int syn_set_watch_open(void)
{
    int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    int failed = arm(fd);
    if (failed == 0)
        return fd;
    close(fd);
    return failed;
}

int syn_set_watch_wait(int fd, int timeout_ms)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    uint64_t expirations;
    if (poll(&ready, 1, timeout_ms) <= 0)
        return 0;
    if (read(fd, &expirations, sizeof expirations) >= 0 || errno != ECANCELED)
        return 0;
    arm(fd);
    return 1;
}
