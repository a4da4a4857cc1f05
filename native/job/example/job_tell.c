/* job_tell SECONDS LOCAL REMOTE: a flow between two IPv4 addresses that moves a megabyte every
 * millisecond, reported to the agent; prints the notices that come meanwhile. Run it by
 * `syntony run -- ./job_tell 10 10.0.0.1 10.0.0.2`. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "syn_job_page.h"

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void print_notice(const struct syn_job_notice *notice)
{
    static const char *const SUBJECTS[] = {"?", "path-dead", "path-alive", "stopped", "started"};
    char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, notice->local, local, sizeof local);
    inet_ntop(AF_INET6, notice->remote, remote, sizeof remote);
    printf("notice %s %s %s\n", SUBJECTS[notice->subject < 5 ? notice->subject : 0], local, remote);
    fflush(stdout);
}

static int read_address(const char *text, uint8_t address[16])
{
    static const uint8_t MAPPED[16] = {[10] = 0xff, [11] = 0xff};
    memcpy(address, MAPPED, sizeof MAPPED);
    return inet_pton(AF_INET, text, address + 12) == 1;
}

int main(int count, char **arguments)
{
    double seconds = count > 1 ? atof(arguments[1]) : 0;
    struct syn_job job = {.fd = -1};
    struct syn_job_flow flow = {.mechanism = SYN_JOB_RDMA, .number = 17, .nic = "mlx5_0",
                                .local_port = 49152, .remote_port = 4791};
    if (count != 4 || !read_address(arguments[2], flow.local) ||
        !read_address(arguments[3], flow.remote)) {
        fprintf(stderr, "usage: job_tell SECONDS LOCAL REMOTE\n");
        return 2;
    }
    int place = -1;
    int64_t next_try_ns = 0;
    struct syn_job_progress progress = {.bytes_outstanding = 1 << 20, .outstanding = 4};
    int64_t end_ns = now_ns() + (int64_t)(seconds * 1e9);
    while (now_ns() < end_ns) {
        /* The job goes on without an agent, which may come, or come back. */
        if (now_ns() >= next_try_ns && syn_job_lost(&job)) {
            syn_job_close(&job);
            if (syn_job_connect(&job, NULL) == 0)
                place = syn_job_open_flow(&job, &flow);
            next_try_ns = now_ns() + 1000000000;
        }
        struct syn_job_notice notice;
        while (syn_job_take(&job, &notice))
            print_notice(&notice);
        progress.bytes_done += 1 << 20;
        progress.last_done_ns = now_ns();
        syn_job_tell(&job, place, &progress);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    syn_job_close(&job);
    return 0;
}
