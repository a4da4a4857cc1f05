#include "late.h"

#include <time.h>

#include "faults.h"

enum { MOST_MS = 10000 };

struct look {
    const struct progress *progress;
    int port, count;
    uint64_t writes[2];
};

/* Or the receiver has ended, or that is not to come. */
static void until(bool holds(const struct look *), const struct look *look)
{
    for (int ms = 0; ms < MOST_MS && !atomic_load(look->progress->ended) && !holds(look); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool both_carry(const struct look *look)
{
    return faults_writes_at(2) > look->writes[0] && faults_writes_at(3) > look->writes[1];
}

static bool some_are_kept(const struct look *look)
{
    return faults_kept(look->port) >= look->count;
}

static bool so_many_completed(const struct look *look)
{
    return atomic_load(look->progress->completed) >= look->count;
}

static void keep_queue_pairs(int rail, bool keep)
{
    for (int end = 0; end < 4; end += 2)
        faults_machine(rail + end, &(struct fake_machine){.undying = keep ? 1 << 30 : 0});
}

void late_inject(enum late kind, uint64_t *random, const struct progress *progress)
{
    int rail = (int)(faults_draw(random) % 2);
    bool is_data = kind == LATE_DATA_ERROR || kind == LATE_DATA_NOTICE;
    bool is_noticed = kind == LATE_DATA_NOTICE || kind == LATE_ACKS_NOTICE;
    int port = is_data ? rail : rail + 2;
    until(both_carry, &(struct look){.progress = progress,
                                     .writes = {faults_writes_at(2) + 1, faults_writes_at(3) + 1}});
    keep_queue_pairs(rail, true);
    faults_set(port, &(struct fake_fault){.kept = is_data ? FAKE_DATA : FAKE_ACKS});
    until(some_are_kept, &(struct look){progress, .port = port, .count = 2});
    if (is_noticed)
        faults_notify(1, rail, rail + 2, 0);
    int completed = atomic_load(progress->completed);
    until(so_many_completed, &(struct look){progress, .count = completed + progress->again});
    faults_let_go(port);
    keep_queue_pairs(rail, false);
    if (is_noticed)
        faults_notify(0, rail, rail + 2, 0);
}
