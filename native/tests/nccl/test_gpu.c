/* Memory of a GPU, which sees what a NIC has written only after a read by the same NIC: the provider
 * keeps it back until then. test_gpu LIBRARY PROVIDER CASE */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "edge.h"

enum { HOST = 1, CUDA = 2, DMABUF = 4, SIZE = 65536, CHUNKS = SIZE / 4096 };

static char *gpu;
static int buffer; /* the DMA-BUF */

static int pointers(void)
{
    struct drive_properties properties;
    CHECK_EQUAL(drive_properties(&net, 0, &properties), 0);
    return properties.pointers;
}

static void machines(int reads_gpus, int takes_dmabuf)
{
    setenv("SYNTONY_NCCL_CHUNK", "4096", 1); /* so that all rails carry some of a message */
    setenv("SYNTONY_NCCL_TIMEOUT", "19", 1); /* no rail is left because this machine is busy */
    buffer = memfd_create("gpu", 0);
    CHECK(buffer >= 0 && ftruncate(buffer, SIZE) == 0);
    gpu = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 0);
    CHECK(gpu != MAP_FAILED);
    faults_gpu_memory(gpu, SIZE);
    for (int port = 0; port < FAKE_PORTS; port++)
        faults_machine(port, &(struct fake_machine){.reads_gpus = reads_gpus,
                                                    .takes_dmabuf = takes_dmabuf});
}

static int by_address(void *comm, int type, void **memory)
{
    return ((int (*)(void *, void *, size_t, int, void **))net.table[SLOT_REG_MR])(comm, gpu, SIZE,
                                                                                   type, memory);
}

static int by_dmabuf(void *comm, int fd, void **memory)
{
    return ((int (*)(void *, void *, size_t, int, uint64_t, int, void **))
                net.table[SLOT_REG_DMABUF])(comm, gpu, SIZE, CUDA, 0, fd, memory);
}

static void *flush(void *memory, int size)
{
    void *data = gpu, *request = NULL;
    CHECK_EQUAL(((int (*)(void *, int, void **, int *, void **, void **))net.table[SLOT_IFLUSH])(
                    receiver, 1, &data, &size, &memory, &request), 0);
    return request;
}

/* A message to the GPU, which does not see all of it yet. */
static void receive(void *memory, char value)
{
    static char sent_from[SIZE];
    static void *registered;
    void *request = NULL, *data = gpu, *sent = NULL;
    size_t size = SIZE;
    int tag = 0;
    memset(sent_from, value, SIZE);
    if (registered == NULL)
        CHECK_EQUAL(drive_reg(&net, sender, sent_from, SIZE, &registered), 0);
    while (request == NULL)
        CHECK_EQUAL(drive_receive(&net, receiver, 1, &data, &size, &tag, &memory, &request), 0);
    for (int done, sizes[8]; sent == NULL;) {
        CHECK_EQUAL(drive_send(&net, sender, sent_from, SIZE, 0, registered, &sent), 0);
        if (sent == NULL)
            CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
    }
    CHECK_EQUAL(results_of(request, sent, NULL), 0);
    CHECK(gpu[0] != value || gpu[SIZE - 1] != value);
}

static bool sees(char value)
{
    for (int i = 0; i < SIZE; i++)
        if (gpu[i] != value)
            return false;
    return true;
}

static void *open_memory(bool as_dmabuf)
{
    void *memory = NULL;
    begin();
    connect_both();
    CHECK_EQUAL(as_dmabuf ? by_dmabuf(receiver, buffer, &memory) : by_address(receiver, CUDA, &memory),
                0);
    return memory;
}

static void several(void *memory)
{
    for (char value = 1; value < 20; value++) {
        receive(memory, value);
        CHECK(flush(memory, 0) == NULL); /* nothing came: nothing is to be read */
        void *request = flush(memory, SIZE), *second = flush(memory, SIZE);
        CHECK(request != NULL && second != NULL);
        CHECK_EQUAL(results_of(request, second, NULL), 0);
        CHECK(sees(value));
    }
    CHECK(flush(receive_memory, SIZE) == NULL); /* of the host */
    CHECK_EQUAL(drive_dereg(&net, receiver, memory), 0);
    int pairs = faults_queue_pairs();
    close_receiver();
    CHECK(pairs - faults_queue_pairs() == 2 * 2 + 2); /* of data, and of reads */
    CHECK(faults_provider_is_clean());
}

static void dmabuf(void)
{
    machines(0, 1);
    void *memory = open_memory(true), *other;
    CHECK_EQUAL(pointers(), HOST | DMABUF);
    CHECK_EQUAL(by_address(receiver, CUDA, &other), 4);
    CHECK_EQUAL(by_dmabuf(receiver, -1, &other), 4);
    several(memory);
}

static void peer_memory(void)
{
    machines(1, 0);
    setenv("SYNTONY_NCCL_GPU_MEMORY", "1", 1);
    void *memory = open_memory(false), *other;
    CHECK_EQUAL(pointers(), HOST | CUDA);
    CHECK_EQUAL(by_dmabuf(receiver, buffer, &other), 4);
    several(memory);
}

/* Announced by none of these; an attempt is an error to NCCL, and nothing else. */
static void none(void)
{
    machines(0, 0);
    begin();
    connect_both();
    void *memory;
    CHECK_EQUAL(pointers(), HOST);
    CHECK_EQUAL(by_address(receiver, CUDA, &memory), 4);
    CHECK_EQUAL(by_address(receiver, HOST, &memory), 2);
    CHECK_EQUAL(by_dmabuf(receiver, buffer, &memory), 4);
    exchange();
}

static void one_port_without(void)
{
    machines(0, 1);
    faults_machine(1, &(struct fake_machine){0});
    begin();
    CHECK_EQUAL(pointers(), HOST);
}

static void switched_off(void)
{
    machines(1, 1);
    setenv("SYNTONY_NCCL_GPU_MEMORY", "0", 1);
    begin();
    CHECK_EQUAL(pointers(), HOST);
}

/* The kernel module is announced, but this NIC's driver refuses. */
static void refused(void)
{
    machines(0, 0);
    setenv("SYNTONY_NCCL_GPU_MEMORY", "1", 1);
    begin();
    connect_both();
    void *memory;
    CHECK_EQUAL(by_address(receiver, CUDA, &memory), 2);
    exchange();
}

static void receive_and_flush(void *memory, char value)
{
    receive(memory, value);
    CHECK_EQUAL(result_of(flush(memory, SIZE), NULL), 0);
}

/* Messages go on until so many queue pairs work: two of each rail at both ends, and a reader of each. */
static void flush_until_pairs(void *memory, int wanted)
{
    static char value;
    while (faults_flow_labels((uint32_t[16]){0}, 16) != wanted)
        receive_and_flush(memory, --value);
}

/* A rail that dies under a read: the other one's read will do, and new ones are made at its return. */
static void rail_fails(void)
{
    machines(0, 1);
    void *memory = open_memory(true);
    receive_and_flush(memory, 1);
    CHECK(sees(1));
    void *request = flush(memory, SIZE), *second = flush(memory, SIZE);
    faults_hold_neighbour(2, 1);
    faults_error(2);
    CHECK_EQUAL(results_of(request, second, NULL), 0);
    for (int i = 0; i < 50; i++)
        receive_and_flush(memory, (char)(2 + i));
    CHECK(sees(51));
    faults_hold_neighbour(2, 0);
    flush_until_pairs(memory, 2 * 2 * 2 + 2);
    receive_and_flush(memory, 99);
    CHECK(sees(99));
}

/* Memory that has been read once, over rails that are left for no other reason than a test's. */
static void *read_once(void)
{
    machines(0, 1);
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s */
    void *memory = open_memory(true);
    receive_and_flush(memory, 1);
    return memory;
}

/* The same, and what the first rail has cannot be destroyed. */
static void *read_once_and_stuck(void)
{
    void *memory = read_once();
    faults_machine(2, &(struct fake_machine){.takes_dmabuf = 1,
                                             .destroying_ns = INT64_C(1000000) * HANG_MS});
    return memory;
}

/* A driver that hangs as it destroys what a rail had that was left holds up neither reads nor the end. */
static void destroying_hangs(void)
{
    void *memory = read_once_and_stuck();
    void *request = flush(memory, SIZE);
    faults_port(2, 0);
    CHECK_EQUAL(result_of(request, NULL), 0);
    receive_and_flush(memory, 2);
    CHECK(sees(2));
    CHECK(faults_held_calls() >= 1);
    close_both();
}

/* Nor does the end wait for what no read has found to be left. */
static void closing_hangs(void)
{
    void *memory = read_once_and_stuck();
    faults_port(2, 0);
    for (char value = 2; !drive_logged("rail fake2 is left"); value++)
        receive(memory, value);
    close_both();
    while (faults_held_calls() < 2) /* of data, and of reads */
        nap();
}

/* What a rail that is left still reads is not waited for. */
static void port_down(void)
{
    void *memory = read_once();
    void *request = flush(memory, SIZE);
    faults_port(2, 0);
    CHECK_EQUAL(result_of(request, NULL), 0);
}

/* A rail that returns and cannot be read over is left again, which is said once; the last one stays, and reads
 * wait. */
static void no_reader(void)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "1000", 1);
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    machines(0, 1);
    void *memory = open_memory(true);
    receive_and_flush(memory, 1);
    faults_machine(2, &(struct fake_machine){.takes_dmabuf = 1, .no_memory = 1});
    faults_error(2);
    for (char value = 2; drive_logged("rail fake2 is left: memory cannot be registered") < 2; value++)
        receive_and_flush(memory, value);
    CHECK_EQUAL(drive_logged("GPU memory cannot be flushed over fake2"), 1);
    faults_port(3, 0);
    void *request = NULL, *none;
    int done = 1, sizes[8], left = 0;
    for (int64_t begun = ran_ms(); left == 0 || ran_ms() - begun < 1500; nap()) {
        bool is_last = drive_logged("rail fake3 is left: its port is down");
        left = is_last && left == 0 ? drive_logged("rail fake2 is left") : left;
        if (done)
            request = flush(memory, SIZE);
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
        CHECK(!done || !is_last);
        CHECK_EQUAL(drive_send(&net, sender, from, 8, 12345, send_memory, &none), 0);
    }
    CHECK_EQUAL(drive_logged("rail fake2 is left"), left);
    faults_machine(2, &(struct fake_machine){.takes_dmabuf = 1});
    CHECK_EQUAL(result_of(request, NULL), 0);
    receive_and_flush(memory, 99);
    CHECK(sees(99));
}

/* Nor is it used while its NIC takes no reads, or they fail. */
static void reads_fail(void)
{
    machines(0, 1);
    setenv("SYNTONY_NCCL_TIMEOUT", "16", 1); /* 2 x 0.3 s */
    void *memory = open_memory(true);
    flush_until_pairs(memory, 2 * 2 * 2 + 2);
    faults_machine(2, &(struct fake_machine){.takes_dmabuf = 1, .refusing = 1});
    CHECK_EQUAL(result_of(flush(memory, SIZE), NULL), 0);
    CHECK_EQUAL(drive_logged("rail fake2 is left: Cannot allocate memory"), 1);
    faults_machine(2, &(struct fake_machine){.takes_dmabuf = 1});
    flush_until_pairs(memory, 2 * 2 * 2 + 2);
    faults_lose(2, 1000); /* only the read is under way */
    CHECK_EQUAL(result_of(flush(memory, SIZE), NULL), 0);
    CHECK_EQUAL(drive_logged("rail fake2 is left: transport retry counter exceeded"), 1);
    faults_lose(2, 0);
    flush_until_pairs(memory, 2 * 2 * 2 + 2);
    void *request = flush(memory, SIZE);
    faults_machine(2, &(struct fake_machine){.takes_dmabuf = 1, .failing_polls = 1});
    CHECK_EQUAL(result_of(request, NULL), 0);
    CHECK_EQUAL(drive_logged("rail fake2 is left: its completion queue failed"), 1);
    flush_until_pairs(memory, 2 * 2 * 2 + 2);
    receive_and_flush(memory, 99);
    CHECK(sees(99));
}

/* As many as there may be requests, asked for in any order. */
static void many_reads(void)
{
    enum { READS = 200 };
    void *requests[READS];
    machines(0, 1);
    void *memory = open_memory(true);
    receive(memory, 1);
    for (int i = 0; i < READS; i++)
        CHECK((requests[i] = flush(memory, SIZE)) != NULL);
    for (int i = READS - 1; i >= 0; i--)
        CHECK_EQUAL(result_of(requests[i], NULL), 0);
    CHECK(sees(1));
}

/* Without any rail a read waits for one, as messages do; and ends with the connection. */
static void dark(void)
{
    machines(0, 1);
    setenv("SYNTONY_NCCL_SURVIVE_MS", "300", 1);
    void *memory = open_memory(true);
    for (int port = 2; port < 4; port++)
        faults_port(port, 0);
    void *request = NULL;
    for (int64_t begun = now_ms(); now_ms() - begun < 100;) { /* until it is known */
        request = flush(memory, SIZE);
        int done = 0, sizes[8];
        int result = drive_test(&net, request, &done, sizes);
        CHECK(result == 0 || now_ms() - begun > 250);
        if (!done)
            break;
    }
    CHECK_EQUAL(result_of(request, NULL), 6);
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"dmabuf", dmabuf}, {"peer_memory", peer_memory}, {"none", none},
        {"one_port_without", one_port_without}, {"switched_off", switched_off},
        {"refused", refused}, {"rail_fails", rail_fails}, {"port_down", port_down},
        {"destroying_hangs", destroying_hangs}, {"closing_hangs", closing_hangs}, {"no_reader", no_reader},
        {"reads_fail", reads_fail}, {"many_reads", many_reads}, {"dark", dark}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
