/* Adds delay to the packets routed into a TUN device, for kernels without netem.
 *
 *     syntony-delay IFNAME DELAY_NS
 *
 * Creates the TUN device IFNAME in the network namespace it runs in, prints "ready", then writes
 * every packet it reads back to the device DELAY_NS later. Each line on stdin is a new delay in ns;
 * when stdin closes it prints "relayed N dropped M" and exits, and the device goes with it. Packets
 * keep their order: a shorter delay never lets a packet overtake an earlier one.
 *
 * Exit status: 0 stdin closed, 1 the device could not be made or was lost, 2 wrong arguments.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PACKET = 2048, /* the fabric's MTU is 1500 */
    SLOTS = 16384,     /* 100 ms of 1500-byte packets at 1.9 Gb/s */
    BATCH = 64,        /* packets read before the clock and stdin are looked at again */
};

#define NS_PER_S INT64_C(1000000000)
#define MAX_DELAY_NS (INT64_C(10) * NS_PER_S)

struct packet {
    int64_t due_ns;
    size_t length;
    unsigned char bytes[MAX_PACKET];
};

struct relay {
    int tun;
    int64_t delay_ns;
    struct packet *ring;
    uint64_t head, tail; /* head: next to send; tail: next free */
    uint64_t relayed, dropped;
    char line[64];
    size_t line_length;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static bool parse_delay(const char *text, int64_t *delay_ns) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 0 || value > MAX_DELAY_NS)
        return false;
    *delay_ns = value;
    return true;
}

static int open_tun(const char *name) {
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "/dev/net/tun: %s\n", strerror(errno));
        return -1;
    }
    strcpy(request.ifr_name, name);
    if (ioctl(fd, TUNSETIFF, &request) != 0) {
        fprintf(stderr, "%s: %s\n", name, strerror(errno));
        close(fd);
        return -1;
    }
    return fd;
}

/* Writes every packet that is due. */
static void send_due(struct relay *r) {
    int64_t now = now_ns();
    while (r->head != r->tail) {
        const struct packet *p = &r->ring[r->head % SLOTS];
        if (p->due_ns > now)
            return;
        if (write(r->tun, p->bytes, p->length) == (ssize_t)p->length)
            r->relayed++;
        else
            r->dropped++;
        r->head++;
    }
}

/* Reads up to a batch; false when the device is gone. */
static bool take_in(struct relay *r) {
    static unsigned char overflow[MAX_PACKET];
    int64_t due = now_ns() + r->delay_ns;
    if (r->head != r->tail && r->ring[(r->tail - 1) % SLOTS].due_ns > due)
        due = r->ring[(r->tail - 1) % SLOTS].due_ns;
    for (int i = 0; i < BATCH; i++) {
        bool full = r->tail - r->head == SLOTS;
        struct packet *p = &r->ring[r->tail % SLOTS];
        ssize_t n = read(r->tun, full ? overflow : p->bytes, MAX_PACKET);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (full) {
            r->dropped++;
            continue;
        }
        p->due_ns = due;
        p->length = (size_t)n;
        r->tail++;
    }
    return true;
}

/* Takes new delays from stdin; false at its end. */
static bool take_orders(struct relay *r) {
    char c[64];
    ssize_t n = read(STDIN_FILENO, c, sizeof c);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    for (ssize_t i = 0; i < n; i++) {
        if (c[i] != '\n') {
            if (r->line_length + 1 < sizeof r->line)
                r->line[r->line_length++] = c[i];
            continue;
        }
        r->line[r->line_length] = '\0';
        r->line_length = 0;
        if (!parse_delay(r->line, &r->delay_ns))
            fprintf(stderr, "not a delay in ns: %s\n", r->line);
    }
    return n > 0;
}

static int run(struct relay *r) {
    for (;;) {
        struct pollfd fds[2] = {{.fd = r->tun, .events = POLLIN},
                                {.fd = STDIN_FILENO, .events = POLLIN}};
        struct timespec wait = {0}, *timeout = NULL;
        if (r->head != r->tail) {
            int64_t left = r->ring[r->head % SLOTS].due_ns - now_ns();
            if (left > 0)
                wait = (struct timespec){.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
            timeout = &wait;
        }
        if (ppoll(fds, 2, timeout, NULL) < 0 && errno != EINTR)
            return 1;
        send_due(r);
        if (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL))
            return 1;
        if ((fds[0].revents & POLLIN) && !take_in(r))
            return 1;
        if (fds[1].revents != 0 && !take_orders(r))
            return 0;
    }
}

int main(int argc, char **argv) {
    struct relay r = {.tun = -1};
    if (argc != 3 || argv[1][0] == '\0' || strlen(argv[1]) >= IFNAMSIZ ||
        !parse_delay(argv[2], &r.delay_ns)) {
        fprintf(stderr, "usage: syntony-delay IFNAME DELAY_NS\n");
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* ns: the default of 50 µs would be added */
    r.ring = calloc(SLOTS, sizeof *r.ring);
    if (r.ring == NULL) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    r.tun = open_tun(argv[1]);
    int status = 1;
    if (r.tun >= 0) {
        printf("ready\n");
        fflush(stdout);
        status = run(&r);
        printf("relayed %" PRIu64 " dropped %" PRIu64 "\n", r.relayed, r.dropped);
        close(r.tun);
    }
    free(r.ring);
    return status;
}
