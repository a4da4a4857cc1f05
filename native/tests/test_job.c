/* test_job [READS SEED]: the page between a process and its agent; with arguments, a process that
 * writes anything anywhere while the agent reads. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "syn_job_page.h"

static struct syn_job_flow flows[SYN_JOB_FLOWS];
static uint32_t torn;

static int make_page(size_t size, int seals)
{
    int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    struct syn_job_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    if (size >= sizeof *page) {
        page->version = SYN_JOB_PAGE_VERSION;
        page->size = sizeof *page;
        page->magic = SYN_JOB_MAGIC;
    }
    munmap(page, sizeof *page);
    CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

/* --- an agent that does as it is reported, for one connection --- */

enum { MAX_COPIES = 8 };

struct agent {
    char path[64];
    int listener, page; /* page -1: hangs up; -2: says nothing */
    unsigned copies;    /* of the page's descriptor; it should send one */
    pthread_t thread;
};

static void *serve(void *argument)
{
    struct agent *agent = argument;
    int fd = accept(agent->listener, NULL, NULL);
    CHECK(fd >= 0);
    if (agent->page >= 0) {
        union {
            char bytes[CMSG_SPACE(MAX_COPIES * sizeof(int))];
            struct cmsghdr align;
        } control = {{0}};
        char version = 1;
        struct iovec vector = {&version, 1};
        struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = CMSG_SPACE(agent->copies * sizeof(int))};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(agent->copies * sizeof(int));
        for (unsigned i = 0; i < agent->copies; i++)
            memcpy(CMSG_DATA(header) + i * sizeof(int), &agent->page, sizeof(int));
        CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) == 1 || errno == EPIPE); /* it waits no longer */
    }
    if (agent->page != -1) { /* until the process goes */
        char byte;
        (void)!read(fd, &byte, 1);
    }
    close(fd);
    return NULL;
}

static void start_agent_that_sends(struct agent *agent, int page, unsigned copies)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    agent->page = page;
    agent->copies = copies;
    snprintf(agent->path, sizeof agent->path, "/tmp/test_job.%d", (int)getpid());
    strcpy(address.sun_path, agent->path);
    unlink(agent->path);
    agent->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(bind(agent->listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(agent->listener, 4) == 0);
    CHECK(pthread_create(&agent->thread, NULL, serve, agent) == 0);
}

static void start_agent(struct agent *agent, int page)
{
    start_agent_that_sends(agent, page, 1);
}

static void end_agent(struct agent *agent)
{
    CHECK(pthread_join(agent->thread, NULL) == 0);
    close(agent->listener);
    unlink(agent->path);
    if (agent->page >= 0)
        close(agent->page);
}

/* A busy machine may answer too late, and is asked again. */
static int connect_to(struct agent *agent, struct syn_job *job)
{
    int error;
    while ((error = syn_job_connect(job, agent->path)) == ETIMEDOUT && agent->page != -2) {
        CHECK_EQUAL(pthread_join(agent->thread, NULL), 0);
        CHECK_EQUAL(pthread_create(&agent->thread, NULL, serve, agent), 0);
    }
    return error;
}

static const int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static void test_what_an_agent_may_be(void)
{
    static const struct {
        size_t size;
        int seals, page, error;
    } CASES[] = {
        {sizeof(struct syn_job_page), SEALS, 0, 0},
        {sizeof(struct syn_job_page), F_SEAL_GROW | F_SEAL_SEAL, 0, EPROTO}, /* could shrink */
        {sizeof(struct syn_job_page), F_SEAL_SHRINK | F_SEAL_GROW, 0, EPROTO},
        {4096, SEALS, 0, EPROTO},
        {0, 0, -1, EACCES},
        {0, 0, -2, ETIMEDOUT},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct agent agent;
        struct syn_job job = {.fd = -1};
        int page = CASES[i].page < 0 ? CASES[i].page : make_page(CASES[i].size, CASES[i].seals);
        start_agent(&agent, page);
        CHECK_EQUAL(connect_to(&agent, &job), CASES[i].error);
        CHECK_EQUAL(syn_job_lost(&job), CASES[i].error != 0);
        syn_job_close(&job);
        syn_job_close(&job);
        end_agent(&agent);
    }
    struct syn_job job = {.fd = -1};
    unsetenv("SYNTONY_AGENT");
    CHECK_EQUAL(syn_job_connect(&job, NULL), ENOENT);
    CHECK_EQUAL(syn_job_connect(&job, "/tmp/no-such-socket"), ENOENT);
    char name[200];
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = 0;
    CHECK_EQUAL(syn_job_connect(&job, name), ENAMETOOLONG);
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* A process asks again and again: what an agent sends besides its page does not pile up. */
static void test_an_agent_may_send_too_much(void)
{
    int before = open_descriptors();
    for (unsigned copies = 1; copies <= MAX_COPIES; copies++) {
        struct agent agent;
        struct syn_job job = {.fd = -1};
        start_agent_that_sends(&agent, make_page(sizeof(struct syn_job_page), SEALS), copies);
        CHECK_EQUAL(connect_to(&agent, &job), 0);
        syn_job_close(&job);
        end_agent(&agent);
        CHECK_EQUAL(open_descriptors(), before);
    }
}

/* --- both ends in one process --- */

static struct syn_job_page *connect_here(struct syn_job *job)
{
    int fd, error;
    struct syn_job_page *page = syn_job_page_make(&fd, &error);
    CHECK(page != NULL && ftruncate(fd, 0) < 0 && ftruncate(fd, 2 * sizeof *page) < 0);
    struct agent agent;
    start_agent(&agent, fd);
    CHECK_EQUAL(connect_to(&agent, job), 0);
    /* The agent's thread ends when this end is shut; the page lives on. */
    shutdown(job->fd, SHUT_WR);
    end_agent(&agent);
    return page;
}

static struct syn_job_flow flow_of(uint64_t number)
{
    struct syn_job_flow flow = {.mechanism = SYN_JOB_RDMA, .number = number, .nic = "mlx5_0",
                                .local_port = 49152, .remote_port = 4791, .errors = 9};
    flow.local[15] = 1;
    flow.remote[15] = 2;
    return flow;
}

static void test_flows_come_and_go(void)
{
    struct syn_job job;
    struct syn_job_page *page = connect_here(&job);
    struct syn_job_flow flow = flow_of(17);
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), 0);
    int place = syn_job_open_flow(&job, &flow);
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), 1);
    CHECK_EQUAL(flows[0].errors, 0); /* a flow begins with nothing done */
    CHECK_EQUAL(flows[0].state, SYN_JOB_OPEN);
    struct syn_job_progress progress = {1000, 24, 55, 3, 1, 12, 1};
    syn_job_tell(&job, place, &progress);
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), 1);
    CHECK_EQUAL(flows[0].number, 17);
    CHECK_EQUAL(flows[0].mechanism, SYN_JOB_RDMA);
    CHECK_EQUAL(flows[0].state, SYN_JOB_FAILED);
    CHECK_EQUAL(flows[0].bytes_done, 1000);
    CHECK_EQUAL(flows[0].bytes_outstanding, 24);
    CHECK_EQUAL(flows[0].last_done_ns, 55);
    CHECK_EQUAL(flows[0].outstanding, 3);
    CHECK_EQUAL(flows[0].errors, 1);
    CHECK_EQUAL(flows[0].last_error, 12);
    CHECK_EQUAL(flows[0].local_port, 49152);
    CHECK_EQUAL(flows[0].remote_port, 4791);
    CHECK_EQUAL(flows[0].local[15], 1);
    CHECK_EQUAL(flows[0].remote[15], 2);
    CHECK(strcmp(flows[0].nic, "mlx5_0") == 0);
    syn_job_close_flow(&job, place);
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), 0);
    syn_job_tell(&job, place, &progress); /* closed, or no place at all: nothing */
    syn_job_tell(&job, -1, &progress);
    syn_job_tell(&job, SYN_JOB_FLOWS, &progress);
    syn_job_close_flow(&job, SYN_JOB_FLOWS);
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), 0);
    memset(flow.nic, 'x', sizeof flow.nic);
    CHECK_EQUAL(syn_job_open_flow(&job, &flow), -EINVAL);
    syn_job_close(&job);
    CHECK_EQUAL(syn_job_open_flow(&job, &flow), -ECHILD);
    syn_job_page_unmap(page);
}

static void test_too_many_flows_are_counted(void)
{
    struct syn_job job;
    struct syn_job_page *page = connect_here(&job);
    for (int i = 0; i < SYN_JOB_FLOWS; i++) {
        struct syn_job_flow flow = flow_of((uint64_t)i);
        CHECK_EQUAL(syn_job_open_flow(&job, &flow), i);
    }
    struct syn_job_flow flow = flow_of(9999);
    CHECK_EQUAL(syn_job_open_flow(&job, &flow), -ENOSPC);
    CHECK_EQUAL(page->left_out, 1);
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), SYN_JOB_FLOWS);
    syn_job_close_flow(&job, 100);
    CHECK_EQUAL(syn_job_open_flow(&job, &flow), 100);
    syn_job_page_read(page, flows, &torn);
    CHECK_EQUAL(flows[100].number, 9999);
    page->used = UINT32_MAX; /* nobody reads beyond the page for that */
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), SYN_JOB_FLOWS);
    page->flows[3].sequence = 1; /* its writer died in the middle */
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), SYN_JOB_FLOWS - 1);
    CHECK_EQUAL(torn, 1);
    syn_job_close(&job);
    syn_job_page_unmap(page);
}

static void test_a_child_has_nothing_to_say(void)
{
    struct syn_job job;
    struct syn_job_page *page = connect_here(&job);
    struct syn_job_flow flow = flow_of(1);
    int place = syn_job_open_flow(&job, &flow);
    struct syn_job_notice notice = {.subject = SYN_JOB_STOPPED};
    syn_job_page_notify(page, 0, &notice);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct syn_job_progress progress = {.bytes_done = 666};
        syn_job_tell(&job, place, &progress);
        syn_job_close_flow(&job, place);
        int right = syn_job_open_flow(&job, &flow) == -ECHILD &&
                    syn_job_take(&job, &notice) == 0 && syn_job_lost(&job) == 1;
        syn_job_close(&job);
        _exit(right ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), 1);
    CHECK_EQUAL(flows[0].bytes_done, 0);
    CHECK_EQUAL(syn_job_take(&job, &notice), 1); /* the parent goes on */
    syn_job_close(&job);
    syn_job_page_unmap(page);
}

static void test_notices_come_in_order_and_the_newest_stay(void)
{
    struct syn_job job;
    struct syn_job_page *page = connect_here(&job);
    struct syn_job_notice notice = {0};
    CHECK_EQUAL(syn_job_take(&job, &notice), 0);
    uint64_t number = 0;
    for (; number < 10; number++)
        syn_job_page_notify(page, number, &(struct syn_job_notice){.at_ns = (int64_t)number});
    for (int64_t at = 0; at < 10; at++) {
        CHECK_EQUAL(syn_job_take(&job, &notice), 1);
        CHECK_EQUAL(notice.at_ns, at);
    }
    CHECK_EQUAL(syn_job_take(&job, &notice), 0);
    for (; number < 10 + SYN_JOB_NOTICES + 5; number++) {
        page->noticed = 12345678901; /* the process scribbles: the agent counts for itself */
        syn_job_page_notify(page, number, &(struct syn_job_notice){.at_ns = (int64_t)number});
    }
    /* The oldest of a full ring may be in the writer's hands at any moment: it is left out, too. */
    for (int64_t at = 10 + 6; at < 10 + SYN_JOB_NOTICES + 5; at++) {
        CHECK_EQUAL(syn_job_take(&job, &notice), 1);
        CHECK_EQUAL(notice.at_ns, at);
    }
    CHECK_EQUAL(syn_job_take(&job, &notice), 0);
    CHECK_EQUAL(job.missed, 6);
    syn_job_close(&job);
    syn_job_page_unmap(page);
}

/* --- several threads --- */

static atomic_int over;

static void *tell_much(void *argument)
{
    struct syn_job *job = argument;
    struct syn_job_flow flow = flow_of(1);
    int place = syn_job_open_flow(job, &flow);
    for (uint64_t i = 1; !over; i++) {
        struct syn_job_progress progress = {i, 2 * i, (int64_t)(3 * i), (uint32_t)i, 0, 0, 0};
        syn_job_tell(job, place, &progress);
    }
    return NULL;
}

static void test_flows_are_read_whole(void)
{
    struct syn_job job;
    struct syn_job_page *page = connect_here(&job);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, tell_much, &job) == 0);
    for (int tries = 0, whole = 0; whole < 2000 && tries < 2000000; tries++) {
        uint32_t count = syn_job_page_read(page, flows, &torn);
        CHECK(count + torn <= 2);
        for (uint32_t i = 0; i < count; i++, whole++) {
            CHECK_EQUAL(flows[i].bytes_outstanding, 2 * flows[i].bytes_done);
            CHECK_EQUAL(flows[i].last_done_ns, 3 * flows[i].bytes_done);
            CHECK_EQUAL(flows[i].outstanding, (uint32_t)flows[i].bytes_done);
        }
    }
    over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQUAL(syn_job_page_read(page, flows, &torn), 2);
    syn_job_close(&job);
    syn_job_page_unmap(page);
}

/* --- a hostile process --- */

static uint64_t state;

static uint64_t random_word(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 11;
}

static void *scribble(void *argument)
{
    uint8_t *bytes = argument;
    while (!over) {
        size_t at = random_word() % sizeof(struct syn_job_page), length = random_word() % 300;
        for (size_t i = at; i < at + length && i < sizeof(struct syn_job_page); i++)
            bytes[i] = random_word() % 3 ? (uint8_t)random_word() : (uint8_t)-(random_word() % 2);
        if (random_word() % 4 == 0) /* the words that steer, more often than chance does */
            memset(bytes + (random_word() % 16) * 8, random_word() % 2 ? 0xff : 0, 8);
    }
    return NULL;
}

static void fuzz(uint64_t reads, uint64_t seed)
{
    struct syn_job job;
    struct syn_job_page *page = connect_here(&job);
    pthread_t thread;
    state = seed;
    over = 0;
    CHECK(pthread_create(&thread, NULL, scribble, page) == 0);
    uint64_t seen = 0, number = 0;
    /* An exact-size copy, so that the sanitizer sees any write beyond it. */
    struct syn_job_flow *out = malloc(SYN_JOB_FLOWS * sizeof *out);
    CHECK(out != NULL);
    for (uint64_t read = 0; read < reads; read++) {
        uint32_t count = syn_job_page_read(page, out, &torn);
        CHECK(count + torn <= SYN_JOB_FLOWS);
        for (uint32_t i = 0; i < count; i++)
            CHECK((out[i].sequence & 1) == 0 && out[i].state != SYN_JOB_FREE);
        seen += count;
        syn_job_page_notify(page, number++, &(struct syn_job_notice){.subject = SYN_JOB_STOPPED});
        struct syn_job_notice notice; /* its own page, scribbled over: the process stays within */
        for (int i = 0; i < 100 && syn_job_take(&job, &notice); i++)
            ;
        struct syn_job_flow flow = flow_of(number);
        syn_job_close_flow(&job, syn_job_open_flow(&job, &flow));
    }
    over = 1;
    pthread_join(thread, NULL);
    free(out);
    syn_job_close(&job);
    syn_job_page_unmap(page);
    printf("%" PRIu64 " reads, %" PRIu64 " flows, seed %" PRIu64 "\n", reads, seen, seed);
}

int main(int count, char **arguments)
{
    if (count == 3) {
        fuzz(strtoull(arguments[1], NULL, 10), strtoull(arguments[2], NULL, 10));
        return 0;
    }
    test_what_an_agent_may_be();
    test_an_agent_may_send_too_much();
    test_flows_come_and_go();
    test_too_many_flows_are_counted();
    test_a_child_has_nothing_to_say();
    test_notices_come_in_order_and_the_newest_stay();
    test_flows_are_read_whole();
    return 0;
}
