/* The plug-in between two hosts with real verbs, driven as NCCL drives it.
 *
 * two_hosts LIBRARY VERSION receive PORT MESSAGES SIZE
 * two_hosts LIBRARY VERSION send ADDRESS:PORT MESSAGES SIZE
 *
 * Every 8-byte word of every message is checked. The receiver ends with one line of JSON: messages,
 * wrong ones, and the longest time between two of them in microseconds. */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "drive.h"

enum { WINDOW = 8, HANDLE = 128, TAG = 7, TRIES = 600 };

static struct net net;
static int messages;
static size_t size;

static void give_up(const char *what)
{
    fprintf(stderr, "two_hosts: %s failed\n", what);
    exit(1);
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static uint64_t word(int message, size_t i)
{
    return (uint64_t)(message + 1) * 0x9e3779b97f4a7c15u + i * 0xd1b54a32d192ed03u;
}

/* The handle travels as NCCL's bootstrap would carry it. */
static void give_handle(int port, const char *handle)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1))
        give_up("listening for the sender");
    int peer = accept(listener, NULL, NULL);
    if (peer < 0 || write(peer, handle, HANDLE) != HANDLE)
        give_up("giving the handle");
    close(peer);
    close(listener);
}

static void take_handle(char *where, char *handle)
{
    char *port = strchr(where, ':');
    if (port == NULL)
        give_up("reading ADDRESS:PORT");
    *port++ = 0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, where, &address.sin_addr);
    for (int i = 0; i < TRIES; i++, usleep(100000)) {
        int peer = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(peer, (void *)&address, sizeof address) == 0 &&
            recv(peer, handle, HANDLE, MSG_WAITALL) == HANDLE) {
            close(peer);
            return;
        }
        close(peer);
    }
    give_up("reaching the receiver");
}

static void send_all(void *comm)
{
    char *memory = aligned_alloc(4096, WINDOW * size);
    void *handle, *requests[WINDOW] = {0};
    if (drive_reg(&net, comm, memory, WINDOW * size, &handle))
        give_up("registering memory");
    for (int posted = 0, done = 0; done < messages;) {
        if (posted < messages && posted - done < WINDOW) {
            uint64_t *data = (uint64_t *)(memory + (size_t)(posted % WINDOW) * size);
            for (size_t i = 0; i < size / 8; i++)
                data[i] = word(posted, i);
            if (drive_send(&net, comm, data, size, TAG, handle, &requests[posted % WINDOW]))
                give_up("sending");
            posted += requests[posted % WINDOW] != NULL;
        }
        int finished = 0, sizes[1];
        if (done < posted && drive_test(&net, requests[done % WINDOW], &finished, sizes))
            give_up("testing a send");
        if (finished)
            requests[done++ % WINDOW] = NULL;
        else
            rest();
    }
    drive_dereg(&net, comm, handle);
    drive_close(&net, SLOT_CLOSE_SEND, comm);
}

static int receive_all(void *comm)
{
    char *memory = aligned_alloc(4096, WINDOW * size);
    void *handle, *requests[WINDOW] = {0};
    int wrong = 0;
    int64_t last_us = 0, longest_us = 0;
    if (drive_reg(&net, comm, memory, WINDOW * size, &handle))
        give_up("registering memory");
    for (int posted = 0, done = 0; done < messages;) {
        if (posted < messages && posted - done < WINDOW) {
            void *data = memory + (size_t)(posted % WINDOW) * size;
            int tag = TAG;
            memset(data, 0xee, size);
            if (drive_receive(&net, comm, 1, &data, &size, &tag, &handle, &requests[posted % WINDOW]))
                give_up("receiving");
            posted += requests[posted % WINDOW] != NULL;
        }
        int finished = 0, sizes[8];
        if (done < posted && drive_test(&net, requests[done % WINDOW], &finished, sizes))
            give_up("testing a receive");
        if (!finished) {
            rest();
            continue;
        }
        const uint64_t *data = (const uint64_t *)(memory + (size_t)(done % WINDOW) * size);
        bool whole = sizes[0] == (int)size;
        for (size_t i = 0; i < size / 8; i++)
            whole &= data[i] == word(done, i);
        wrong += !whole;
        int64_t at_us = now_us();
        if (last_us && at_us - last_us > longest_us)
            longest_us = at_us - last_us;
        last_us = at_us;
        requests[done++ % WINDOW] = NULL;
    }
    drive_dereg(&net, comm, handle);
    drive_close(&net, SLOT_CLOSE_RECEIVE, comm);
    printf("{\"messages\": %d, \"wrong\": %d, \"longest_us\": %lld}\n", messages, wrong,
           (long long)longest_us);
    return wrong != 0;
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    bool receives = strcmp(argv[3], "receive") == 0;
    char handle[HANDLE] = {0};
    void *listener = NULL, *comm = NULL;
    messages = atoi(argv[5]);
    size = (size_t)atoi(argv[6]) / 8 * 8;
    net = drive_load(argv[1], atoi(argv[2]));
    if (drive_init(&net))
        give_up("init");
    if (receives) {
        if (drive_listen(&net, 0, handle, &listener))
            give_up("listen");
        give_handle(atoi(argv[4]), handle);
    } else {
        take_handle(argv[4], handle);
    }
    while (comm == NULL) {
        if (receives ? drive_accept(&net, listener, &comm) : drive_connect(&net, 0, handle, &comm))
            give_up(receives ? "accept" : "connect");
        rest();
    }
    fprintf(stderr, "two_hosts: connected\n");
    int result = 0;
    if (receives)
        result = receive_all(comm);
    else
        send_all(comm);
    if (receives)
        drive_close(&net, SLOT_CLOSE_LISTEN, listener);
    drive_finalize(&net);
    return result;
}
