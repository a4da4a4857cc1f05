#include "faults.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "syn_job_page.h"

static struct {
    void (*set_fault)(int, const struct fake_fault *);
    void (*set_active)(int, int);
    void (*fail_queues)(int);
    void (*counts)(struct fake_counts *);
    void (*cost)(struct fake_cost *);
    double (*accounting)(void);
    int (*kept)(int);
    void (*let_go)(int);
    void (*limit)(const struct fake_limits *);
    void (*be)(const struct fake_vendor *);
    void (*vanish)(int);
    void (*event)(int, int);
    int (*flow_labels)(uint32_t *, int);
    int (*class_of)(int);
    void (*say)(int, const void *, uint32_t);
    void (*hold_neighbour)(int, int);
    void (*hide_neighbour)(int, int);
    void (*set_machine)(int, const struct fake_machine *);
    void (*gpu_memory)(const void *, uint64_t);
    int (*held_calls)(void);
    int (*queue_pairs)(void);
    int (*objects)(void);
} fake;
static struct { struct syn_job_page *page; int fd; uint64_t notices; } asked[2]; /* of a process each */
static int listener, processes, asked_count;
static atomic_bool is_serving; /* not all have asked */
static pthread_mutex_t page_lock = PTHREAD_MUTEX_INITIALIZER;
static int injected[FAULTS];
static const char *const NAMES[FAULTS] = {"late", "loss", "black hole", "duplicates", "port down",
                                          "completion error", "both rails", "flaps", "lying notice",
                                          "late and a notice", "administrative down",
                                          "slow drain", "neighbour away"};

uint64_t faults_draw(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void *serve(void *unused)
{
    (void)unused;
    while (asked_count < processes) {
        int fd = accept(listener, NULL, NULL), page_fd, error;
        if (fd < 0)
            return NULL;
        struct syn_job_page *made = syn_job_page_make(&page_fd, &error);
        char version = SYN_JOB_PAGE_VERSION;
        struct iovec vector = {&version, 1};
        union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {{0}};
        struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &page_fd, sizeof page_fd);
        int is_sent = sendmsg(fd, &message, MSG_NOSIGNAL) == 1;
        close(page_fd);
        if (!is_sent) { /* the process has waited for too long, and asks again */
            syn_job_page_unmap(made);
            close(fd);
            continue;
        }
        if (asked_count + 1 == processes) /* many of these tests are killed */
            unlink(getenv("SYNTONY_AGENT"));
        pthread_mutex_lock(&page_lock);
        asked[asked_count].page = made;
        asked[asked_count].notices = 0;
        asked[asked_count++].fd = fd;
        pthread_mutex_unlock(&page_lock);
    }
    atomic_store(&is_serving, false);
    return NULL;
}

void faults_name_agent(int count)
{
    processes = count;
    asked_count = 0;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/syntony-test-agent.%d", getpid());
    unlink(address.sun_path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 4))
        abort();
    setenv("SYNTONY_AGENT", address.sun_path, 1);
}

void faults_serve_agent(void)
{
    pthread_t thread;
    atomic_store(&is_serving, true);
    if (pthread_create(&thread, NULL, serve, NULL))
        abort();
    pthread_detach(thread);
}

void faults_start_agent(void)
{
    faults_name_agent(1);
    faults_serve_agent();
}

void faults_end_agent(void)
{
    while (atomic_load(&is_serving))
        usleep(100);
    pthread_mutex_lock(&page_lock);
    for (int i = 0; i < asked_count; i++) {
        close(asked[i].fd);
        asked[i].page = NULL;
    }
    pthread_mutex_unlock(&page_lock);
}

void faults_load(const char *provider)
{
    void *loaded = dlopen(provider, RTLD_NOW | RTLD_LOCAL);
    if (loaded == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&fake.set_fault = dlsym(loaded, "fake_set_fault");
    *(void **)&fake.set_active = dlsym(loaded, "fake_set_active");
    *(void **)&fake.fail_queues = dlsym(loaded, "fake_fail_queues");
    *(void **)&fake.counts = dlsym(loaded, "fake_counts");
    *(void **)&fake.cost = dlsym(loaded, "fake_cost");
    *(void **)&fake.kept = dlsym(loaded, "fake_kept");
    *(void **)&fake.let_go = dlsym(loaded, "fake_let_go");
    *(void **)&fake.limit = dlsym(loaded, "fake_limit");
    *(void **)&fake.be = dlsym(loaded, "fake_be");
    *(void **)&fake.vanish = dlsym(loaded, "fake_vanish");
    *(void **)&fake.event = dlsym(loaded, "fake_event");
    *(void **)&fake.accounting = dlsym(loaded, "fake_cost_of_accounting");
    *(void **)&fake.flow_labels = dlsym(loaded, "fake_flow_labels");
    *(void **)&fake.class_of = dlsym(loaded, "fake_class");
    *(void **)&fake.say = dlsym(loaded, "fake_say");
    *(void **)&fake.hold_neighbour = dlsym(loaded, "fake_hold_neighbour");
    *(void **)&fake.hide_neighbour = dlsym(loaded, "fake_hide_neighbour");
    *(void **)&fake.set_machine = dlsym(loaded, "fake_set_machine");
    *(void **)&fake.gpu_memory = dlsym(loaded, "fake_gpu_memory");
    *(void **)&fake.held_calls = dlsym(loaded, "fake_held_calls");
    *(void **)&fake.objects = dlsym(loaded, "fake_objects");
    *(void **)&fake.queue_pairs = dlsym(loaded, "fake_queue_pairs");
}

static void wait_us(uint64_t us)
{
    struct timespec pause = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    nanosleep(&pause, NULL);
}

static void address_of(int port, uint8_t to[16])
{
    const uint8_t raw[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(port + 1)};
    memcpy(to, raw, sizeof raw);
}

void faults_order(int subject, int local, int remote, int64_t for_ns, uint64_t rate_bps,
                  uint32_t only_class)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now_ns = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
    struct syn_job_notice notice = {.subject = (uint32_t)subject, .at_ns = now_ns,
                                    .expires_ns = for_ns ? now_ns + for_ns : 0,
                                    .rate_bps = rate_bps, .only_class = only_class};
    address_of(local, notice.local);
    address_of(remote, notice.remote);
    pthread_mutex_lock(&page_lock);
    for (int i = 0; i < asked_count; i++)
        if (asked[i].page)
            syn_job_page_notify(asked[i].page, asked[i].notices++, &notice);
    pthread_mutex_unlock(&page_lock);
}

void faults_notify(int dead, int local, int remote, int64_t for_ns)
{
    faults_order(dead ? SYN_JOB_PATH_DEAD : SYN_JOB_PATH_ALIVE, local, remote, dead ? for_ns : 0, 0,
                 0);
}

static void fault_for_a_while(int port, struct fake_fault fault, uint64_t us)
{
    fake.set_fault(port, &fault);
    wait_us(us);
    fake.set_fault(port, &(struct fake_fault){0});
}

void faults_inject(int kind, uint64_t *random)
{
    int rail = (int)(faults_draw(random) % 2);
    int end = (int)(faults_draw(random) % 2) * 2; /* ports 0 and 1 send, 2 and 3 receive */
    int port = rail + end;
    uint64_t us = 2000 + faults_draw(random) % 30000;
    if (kind < 0)
        kind = (int)(faults_draw(random) % FAULTS);
    injected[kind]++;
    switch (kind) {
    case FAULT_LATE:
        fault_for_a_while(port, (struct fake_fault){.delay_ns = (int64_t)(faults_draw(random) % 60 + 1) *
                                                                1000000}, us);
        break;
    case FAULT_LOSS:
        fault_for_a_while(port, (struct fake_fault){.lost_permille = 300}, us);
        break;
    case FAULT_HOLE:
        fault_for_a_while(port, (struct fake_fault){.lost_permille = 1000}, us);
        break;
    case FAULT_DUPLICATES:
        fault_for_a_while(port, (struct fake_fault){.duplicated_permille = 500, .delay_ns = 500000}, us);
        break;
    case FAULT_PORT:
        fake.set_active(port, 0);
        wait_us(us);
        fake.set_active(port, 1);
        break;
    case FAULT_ERROR:
        fake.fail_queues(port);
        break;
    case FAULT_BOTH:
        fake.set_fault(end, &(struct fake_fault){.lost_permille = 1000});
        fault_for_a_while(end + 1, (struct fake_fault){.delay_ns = 40000000}, us);
        fake.set_fault(end, &(struct fake_fault){0});
        break;
    case FAULT_FLAPS:
        for (int i = 0; i < 4; i++) {
            fake.set_active(port, 0);
            wait_us(us / 16);
            fake.set_active(port, 1);
            wait_us(us / 16);
        }
        break;
    case FAULT_NOTICE: /* both rails at once, at both ends */
        for (int r = 0; r < 2; r++) {
            faults_notify(1, r, r + 2, (int64_t)us * 1000);
            faults_notify(1, r + 2, r, (int64_t)us * 1000);
        }
        wait_us(us / 2);
        faults_notify(0, rail, rail + 2, 0);
        break;
    case FAULT_LATE_NOTICE: /* data or acknowledgements, by the end */
        fake.set_fault(port, &(struct fake_fault){.delay_ns = (int64_t)us * 2000});
        wait_us(us / 2);
        faults_notify(1, rail, rail + 2, (int64_t)us * 1000);
        wait_us(us / 2);
        fake.set_fault(port, &(struct fake_fault){0});
        break;
    case FAULT_ADMIN: /* the port, and all that was under way */
        fake.set_active(port, 0);
        fake.fail_queues(port);
        wait_us(us);
        fake.set_active(port, 1);
        break;
    case FAULT_NEIGHBOUR: /* after a port's return its neighbours answer late */
        fake.hold_neighbour(port, 1);
        fake.set_active(port, 0);
        wait_us(us / 4);
        fake.set_active(port, 1);
        wait_us(us / 2);
        if (us % 2) /* it goes meanwhile */
            fake.fail_queues(port ^ 2);
        wait_us(us / 4);
        fake.hold_neighbour(port, 0);
        break;
    default:
        fake.set_fault(port, &(struct fake_fault){.completion_delay_ns = (int64_t)us * 300,
                                                  .delay_ns = 20000000});
        wait_us(us / 2);
        faults_notify(1, rail, rail + 2, 5000000);
        wait_us(us / 2);
        fake.set_fault(port, &(struct fake_fault){0});
    }
}

uint64_t faults_late_arrivals(void)
{
    struct fake_counts counts;
    fake.counts(&counts);
    return counts.after_end;
}

int faults_provider_is_clean(void)
{
    struct fake_counts counts;
    fake.counts(&counts);
    return counts.not_ready == 0 && counts.wrong_key == 0;
}

void faults_port(int port, int active)
{
    fake.set_active(port, active);
}

void faults_slow_completions(int port, int64_t completion_delay_ns, int64_t delay_ns)
{
    fake.set_fault(port, &(struct fake_fault){.completion_delay_ns = completion_delay_ns,
                                              .delay_ns = delay_ns});
}

uint64_t faults_writes_at(int port)
{
    struct fake_counts counts;
    fake.counts(&counts);
    return counts.writes_at[port];
}

uint64_t faults_writes(void)
{
    struct fake_counts counts;
    fake.counts(&counts);
    return counts.writes;
}

void faults_set(int port, const struct fake_fault *fault)
{
    fake.set_fault(port, fault);
}

void faults_delay(int port, int64_t delay_ns)
{
    fake.set_fault(port, &(struct fake_fault){.delay_ns = delay_ns});
}

int faults_kept(int port)
{
    return fake.kept(port);
}

void faults_let_go(int port)
{
    fake.let_go(port);
}

void faults_limit(const struct fake_limits *limits)
{
    fake.limit(limits);
}

void faults_be(const struct fake_vendor *vendor)
{
    fake.be(vendor);
}

void faults_vanish(int port)
{
    fake.vanish(port);
}

void faults_event(int port, int event)
{
    fake.event(port, event);
}

void *faults_page(void)
{
    pthread_mutex_lock(&page_lock);
    void *own = asked[0].page;
    pthread_mutex_unlock(&page_lock);
    return own;
}

void faults_lose(int port, int permille)
{
    fake.set_fault(port, &(struct fake_fault){.lost_permille = permille});
}

void faults_cost(struct fake_cost *cost)
{
    fake.cost(cost);
}

double faults_cost_of_accounting(void)
{
    return fake.accounting();
}

void faults_hold_neighbour(int port, int hold)
{
    fake.hold_neighbour(port, hold);
}

void faults_hide_neighbour(int port, int hide)
{
    fake.hide_neighbour(port, hide);
}

void faults_machine(int port, const struct fake_machine *machine)
{
    fake.set_machine(port, machine);
}

void faults_gpu_memory(const void *address, uint64_t size)
{
    fake.gpu_memory(address, size);
}

int faults_held_calls(void)
{
    return fake.held_calls();
}

int faults_objects(void)
{
    return fake.objects();
}

int faults_queue_pairs(void)
{
    return fake.queue_pairs();
}

void faults_error(int port)
{
    fake.fail_queues(port);
}

void faults_say(int port, const void *record, uint32_t size)
{
    fake.say(port, record, size);
}

int faults_flow_labels(uint32_t *labels, int room)
{
    return fake.flow_labels(labels, room);
}

int faults_class(int port)
{
    return fake.class_of(port);
}

void faults_print(void)
{
    struct fake_counts counts;
    fake.counts(&counts);
    for (int i = 0; i < FAULTS; i++)
        if (injected[i])
            printf("%s %d, ", NAMES[i], injected[i]);
    printf("writes %" PRIu64 ", retransmitted %" PRIu64 ", duplicates %" PRIu64
           ", late %" PRIu64 ", not ready %" PRIu64 ", wrong key %" PRIu64 "\n",
           counts.writes, counts.retransmitted, counts.duplicates, counts.after_end,
           counts.not_ready, counts.wrong_key);
}
