/* What the plug-in does on the agent's orders, given by the agent's own page.
 * test_orders LIBRARY PROVIDER CASE */
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "edge.h"
#include "syn_job_page.h"

static atomic_int behind_s; /* the coarse clock, usually by some milliseconds */

__attribute__((visibility("default")))
int clock_gettime(clockid_t clock, struct timespec *to)
{
    int result = (int)syscall(SYS_clock_gettime, clock, to);
    if (clock == CLOCK_MONOTONIC_COARSE)
        to->tv_sec -= atomic_load(&behind_s);
    return result;
}

enum { LABELS = 8, CLASS = 104 };
static const int64_t FOR_EVER_NS = 0, LONG_NS = INT64_C(600000000000);
static const uint64_t NEARLY_NOTHING_BPS = 8; /* a byte a second */

/* What the page says of a rail of the sender: -1: nothing. */
static int failed(int rail)
{
    const struct syn_job_page *page = faults_page();
    for (int i = 0; i < SYN_JOB_FLOWS; i++)
        if (page->flows[i].state != SYN_JOB_FREE && page->flows[i].local[15] == rail + 1)
            return page->flows[i].state == SYN_JOB_FAILED;
    return -1;
}

/* The agent learns of it with the next report. */
static void until_failed(int rail, int wanted)
{
    for (int64_t begun = now_ms(); failed(rail) != wanted;) {
        CHECK(now_ms() - begun < HANG_MS);
        exchange();
    }
}

static void leave_and_return(void)
{
    begin_with_agent();
    until_pairs(8);
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
    exchange_for(300);
    until_pairs(4); /* it stays away */
    until_failed(0, 1);
    CHECK_EQUAL(failed(1), 0);
    faults_order(SYN_JOB_PATH_ALIVE, 0, 2, FOR_EVER_NS, 0, 0);
    until_pairs(8);
    until_failed(0, 0);
}

/* What has gone by a rail of the sender, as the page says. */
static uint64_t done_by(int rail)
{
    const struct syn_job_page *page = faults_page();
    uint64_t bytes = 0;
    for (int i = 0; i < SYN_JOB_FLOWS; i++)
        if (page->flows[i].state != SYN_JOB_FREE && page->flows[i].local[15] == rail + 1)
            bytes += page->flows[i].bytes_done;
    return bytes;
}

static const struct syn_job_flow *flow_of(int rail)
{
    const struct syn_job_page *page = faults_page();
    const struct syn_job_flow *found = NULL;
    for (int i = 0; i < SYN_JOB_FLOWS; i++)
        if (page->flows[i].state != SYN_JOB_FREE && page->flows[i].local[15] == rail + 1) {
            CHECK(found == NULL);
            found = &page->flows[i];
        }
    return found;
}

/* The sender's rail 0 is of the path whose addresses begin with `first`, and not with `other` any more. */
static void until_path(uint8_t first, uint8_t other)
{
    const struct syn_job_page *page = faults_page();
    for (int64_t begun = now_ms();; exchange()) {
        int firsts = 0, others = 0;
        for (int i = 0; i < SYN_JOB_FLOWS; i++)
            if (page->flows[i].state != SYN_JOB_FREE && page->flows[i].local[15] == 1) {
                firsts += page->flows[i].local[0] == first;
                others += page->flows[i].local[0] == other;
            }
        if (firsts && !others)
            return;
        CHECK(now_ms() - begun < HANG_MS);
    }
}

/* Messages go on until a rail carries some of them, and until that is reported. */
static void until_carried_by(int rail)
{
    uint64_t before = done_by(rail);
    for (int64_t begun = now_ms(); done_by(rail) == before;) {
        CHECK(now_ms() - begun < HANG_MS);
        exchange();
    }
    exchange_for(500);
}

/* A rail that returns is the same flow, unless it has another path now: of that, counts begin anew. */
static void flows_are_of_paths(void)
{
    enum { RETRIES_EXCEEDED = 12 /* enum ibv_wc_status */, IPV6 = 1 };
    setenv("SYNTONY_NCCL_TIMEOUT", "16", 1); /* 2 x 0.3 s */
    begin_with_agent();
    until_both_up();
    until_carried_by(0);
    CHECK_EQUAL(flow_of(0)->errors, 0);
    CHECK(flow_of(0)->last_done_ns > 0);
    const struct syn_job_flow *flow = flow_of(0);
    uint64_t number = flow->number, done = flow->bytes_done;
    faults_lose(0, 1000);
    until_pairs(4);
    faults_lose(0, 0);
    until_both_up();
    for (int64_t begun = now_ms(); flow->errors == 0; exchange()) /* until it is reported */
        CHECK(now_ms() - begun < HANG_MS);
    until_carried_by(0);
    CHECK(flow_of(0) == flow && flow->number == number && flow->bytes_done >= done);
    /* And not what was flushed for that; none if the peer was the first to fail, and said so. */
    CHECK(flow->last_error == RETRIES_EXCEEDED || flow->last_error == 0);
    done = flow->bytes_done;
    for (int port = 0; port < 4; port += 2)
        faults_machine(port, &(struct fake_machine){.gid_kind = IPV6});
    faults_error(0);
    until_path(0x20, 0);
    CHECK(flow_of(0)->bytes_done < done);
    for (int port = 0; port < 4; port += 2)
        faults_machine(port, &(struct fake_machine){0});
    faults_error(0);
    until_path(0, 0x20);
    CHECK_EQUAL(flow_of(0)->errors, 0); /* though its place may be one that was used before */
}

/* Messages go on until a report says that the other rail alone carried them: orders and reports may be late. */
static void not_carried_by(int rail)
{
    uint64_t before, other;
    int64_t begun = now_ms();
    do {
        CHECK(now_ms() - begun < HANG_MS);
        before = done_by(rail);
        other = done_by(1 - rail);
        exchange_for(500);
    } while (done_by(rail) != before || done_by(1 - rail) == other);
}

static void avoid(int rail, int64_t for_ns)
{
    faults_order(SYN_JOB_PATH_AVOID, rail, rail + 2, for_ns, 0, 0);
}

/* Of InfiniBand, too, paths are between GIDs. */
static void paths_of_infiniband(void)
{
    for (int port = 0; port < 4; port++)
        faults_machine(port, &(struct fake_machine){.infiniband = 1});
    begin_with_agent();
    until_both_up();
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
    until_failed(0, 1);
    faults_order(SYN_JOB_PATH_ALIVE, 0, 2, FOR_EVER_NS, 0, 0);
    until_both_up();
}

/* A rail that begins without an address: the agent learns of its path when it has one, and what it said of
 * that before holds. */
static void address_comes_later(void)
{
    faults_machine(0, &(struct fake_machine){.old_gid = 1});
    begin_with_agent();
    until_carried_by(1);
    CHECK_EQUAL(done_by(0), 0);
    avoid(0, LONG_NS);
    usleep(20000); /* the background thread's look */
    faults_machine(0, &(struct fake_machine){0});
    until_both_up();
    not_carried_by(0);
    avoid(0, -1);
    until_carried_by(0);
    CHECK_EQUAL(failed(0), 0);
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
}

/* Also messages that are alone on their way, of a chunk each, use all rails. */
static void small_messages_take_turns(void)
{
    begin_with_agent();
    for (int i = 0; i < 3; i++) {
        until_carried_by(0);
        until_carried_by(1);
    }
}

static void avoid_and_return(void)
{
    begin_with_agent();
    until_carried_by(0);
    avoid(0, LONG_NS);
    until_carried_by(1);
    not_carried_by(0);
    faults_order(SYN_JOB_PATH_ALIVE, 0, 2, FOR_EVER_NS, 0, 0); /* failover's word is another one */
    exchange_for(100);
    not_carried_by(0);
    until_pairs(8); /* nothing was left for it */
    avoid(0, -1);
    until_carried_by(0);
    avoid(0, LONG_NS);
    until_carried_by(1);
    faults_order(SYN_JOB_STOPPED, 0, 0, FOR_EVER_NS, 0, 0);
    until_carried_by(0);
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
    avoid(0, -1); /* an order that ends is no sign of life */
    exchange_for(300);
    until_pairs(4);
}

static void avoid_expires(void)
{
    begin_with_agent();
    avoid(0, INT64_C(1500000000));
    until_carried_by(1);
    until_carried_by(0);
}

/* The rail that stands in is dead, by a notice or indeed: what was avoided carries at once. */
static void avoid_ends_with_failover(void)
{
    begin_with_agent();
    avoid(0, LONG_NS);
    until_carried_by(1);
    faults_order(SYN_JOB_PATH_DEAD, 1, 3, LONG_NS, 0, 0);
    until_carried_by(0);
    not_carried_by(1);
    faults_order(SYN_JOB_PATH_ALIVE, 1, 3, FOR_EVER_NS, 0, 0);
    until_carried_by(1);
    faults_port(1, 0);
    until_carried_by(0);
}

/* Whatever is ordered, some rail carries on. */
static void avoid_everything(void)
{
    begin_with_agent();
    order_both(SYN_JOB_PATH_AVOID, 0, 0, LONG_NS);
    exchange_for(100);
    until_carried_by(0);
    faults_port(0, 0);
    until_carried_by(1);
}

/* Of a message of 1 MiB, by a connection that carries no others. */
static uint64_t chunks_of_one_more(void)
{
    enum { SIZE = 1 << 20 };
    static char source[SIZE], target[SIZE], next;
    static void *here, *there, *of;
    void *data = target, *request = NULL, *sent = NULL;
    size_t size = SIZE;
    int tag = 0;
    memset(source, ++next, SIZE);
    if (of != sender) {
        of = sender;
        CHECK_EQUAL(drive_reg(&net, sender, source, SIZE, &here), 0);
        CHECK_EQUAL(drive_reg(&net, receiver, target, SIZE, &there), 0);
    }
    CHECK_EQUAL(drive_receive(&net, receiver, 1, &data, &size, &tag, &there, &request), 0);
    CHECK(request != NULL);
    pump(request, 100); /* the sender has its clear-to-send, and has looked at orders */
    uint64_t before = faults_writes();
    CHECK_EQUAL(drive_send(&net, sender, source, SIZE, tag, here, &sent), 0);
    CHECK(sent != NULL);
    CHECK_EQUAL(results_of(request, sent, NULL), 0);
    CHECK_EQUAL(memcmp(source, target, SIZE), 0);
    return faults_writes() - before;
}

static uint64_t chunks_of_a_large_message(void)
{
    listen_again();
    connect_both();
    return chunks_of_one_more();
}

/* A chunk by each rail. */
static void large_messages(void)
{
    begin_with_agent();
    uint64_t before[] = {done_by(0), done_by(1)};
    CHECK_EQUAL(chunks_of_a_large_message(), 2);
    for (int rail = 0; rail < 2; rail++)
        for (int64_t begun = now_ms(); done_by(rail) < before[rail] + (1 << 19); exchange())
            CHECK(now_ms() - begun < HANG_MS);
    avoid(0, LONG_NS);
    until_carried_by(1);
    CHECK_EQUAL(chunks_of_a_large_message(), 4);
    avoid(0, -1);
    until_carried_by(0);
    CHECK_EQUAL(chunks_of_a_large_message(), 2);
}

static void until_chunks(uint64_t wanted)
{
    for (int64_t begun = now_ms(); chunks_of_one_more() != wanted;)
        CHECK(now_ms() - begun < HANG_MS);
}

/* An order that has ended is none, also if it expired: chunks are large again. */
static void orders_end(void)
{
    begin_with_agent();
    CHECK_EQUAL(chunks_of_a_large_message(), 2);
    for (int i = 0; i < 2; i++) {
        order_both(SYN_JOB_PATH_PACE, UINT64_C(1000000000), 0, LONG_NS);
        until_chunks(4);
        order_both(SYN_JOB_PATH_PACE, 0, 0, FOR_EVER_NS);
        until_chunks(2);
        for (int64_t begun = now_ms(); chunks_of_one_more() != 4;) { /* the order may come late */
            CHECK(now_ms() - begun < HANG_MS);
            faults_order(i ? SYN_JOB_PATH_PACE : SYN_JOB_PATH_AVOID, 0, 2, 1000000000, /* of the first rail */
                         UINT64_C(1000000000), 0);
            usleep(20000);
        }
        until_chunks(2);
    }
}

static int count_new(const uint32_t *before, const uint32_t *after)
{
    int count = LABELS;
    for (int i = 0; i < LABELS; i++)
        for (int j = 0; j < LABELS; j++)
            if (after[i] == before[j]) {
                count--;
                break;
            }
    return count;
}

/* Another way is other flow labels, of the two queue pairs at each end of that rail. */
static void move(void)
{
    uint32_t before[LABELS], after[LABELS];
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: it is not left for another reason */
    begin_with_agent();
    until_pairs(8);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(faults_flow_labels(before, LABELS), 8);
        int64_t ordered = 0;
        for (int64_t begun = now_ms();
             faults_flow_labels(after, LABELS) != 8 || count_new(before, after) == 0; exchange()) {
            CHECK(now_ms() - begun < HANG_MS);
            if (now_ms() - ordered > 5000) { /* again, if a rail that was not back yet has ignored it */
                faults_order(SYN_JOB_PATH_MOVE, 0, 2, FOR_EVER_NS, 0, 0);
                ordered = now_ms();
            }
        }
        CHECK_EQUAL(count_new(before, after), 4);
        exchange_for(50); /* both ends know that it is back */
    }
    /* Each order counts once, and not for connections that begin later. */
    avoid(1, -1);
    exchange_for(100);
    listen_again();
    connect_both();
    exchange_for(100);
    CHECK_EQUAL(drive_logged("it is to take another way"), 3);
}

/* More notices and orders than there are places: what holds keeps its place, what is over gives it up. */
static void many_paths(void)
{
    enum { PATHS = 300, AT_ONCE = 30, RATES = 140 };
    begin_with_agent();
    avoid(0, LONG_NS);
    until_carried_by(1);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < (round < 2 ? PATHS : RATES); i++) {
            faults_order(round < 2 ? SYN_JOB_PATH_DEAD : SYN_JOB_PATH_PACE, 10 + i % 200,
                         10 + i / 200 + 10 * round, round ? LONG_NS : 1, NEARLY_NOTHING_BPS, 0);
            if (i % AT_ONCE == 0)
                usleep(20000); /* the background thread's look */
        }
    exchange_for(100);
    not_carried_by(0);
    avoid(0, -1);
    until_carried_by(0);
}

/* The path of a rail that is not connected yet is known, if both ends have addresses. */
static void neighbour_comes_later(void)
{
    faults_hide_neighbour(0, 1);
    begin_with_agent();
    until_failed(0, 1);
    CHECK_EQUAL(flow_of(0)->remote[15], 3);
    faults_hide_neighbour(0, 0);
    until_both_up();
    until_failed(0, 0);
}

/* What was over by the exact clock is not in force again by the coarse one, which is behind. */
static void what_is_over_stays_so(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: it is not left for another reason */
    begin_with_agent();
    until_both_up();
    atomic_store(&behind_s, 600);
    while (drive_logged("rail fake0 is left") == 0) { /* an order that is read late is over */
        faults_order(SYN_JOB_PATH_DEAD, 0, 2, INT64_C(500000000), 0, 0);
        exchange_for(100);
    }
    while (drive_logged("rail fake0 is back") == 0)
        exchange();
    until_both_up();
    avoid(1, -1); /* the agent's word is asked for again */
    exchange_for(300);
    CHECK_EQUAL(drive_logged("rail fake0 is left"), 1);
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"leave_and_return", leave_and_return}, {"address_comes_later", address_comes_later},
        {"flows_are_of_paths", flows_are_of_paths}, {"paths_of_infiniband", paths_of_infiniband},
        {"small_messages_take_turns", small_messages_take_turns},
        {"large_messages", large_messages}, {"orders_end", orders_end},
        {"avoid_and_return", avoid_and_return}, {"avoid_expires", avoid_expires},
        {"avoid_ends_with_failover", avoid_ends_with_failover},
        {"avoid_everything", avoid_everything}, {"move", move}, {"many_paths", many_paths}, {"neighbour_comes_later", neighbour_comes_later},
        {"what_is_over_stays_so", what_is_over_stays_so}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
