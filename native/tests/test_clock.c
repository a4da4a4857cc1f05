#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "syn_clock.h"

static const int64_t BASE = INT64_C(1700000000000000000);
static const int64_t SECOND = 1000000000;

static struct syn_clock_spec wild(void)
{
    return (struct syn_clock_spec){.base_ns = BASE, .offset_ns = -12345678, .drift_ppb = 37000,
                                   .wander_ppb = 20, .seed = 42, .swing_ppb = 500,
                                   .swing_period_ns = 60 * SECOND};
}

static struct syn_clock *open_clock(const struct syn_clock_spec *spec)
{
    struct syn_clock *clock = syn_clock_open(spec, NULL, 0);
    CHECK(clock != NULL);
    return clock;
}

/* Backwards, forwards or at random: the same bits. */
static void the_order_of_questions_does_not_matter(void)
{
    struct syn_clock_spec spec = wild();
    struct syn_clock *forwards = open_clock(&spec), *backwards = open_clock(&spec);
    static int64_t local[5000];
    for (int i = 0; i < 5000; i++)
        local[i] = syn_clock_map(forwards, BASE + i * INT64_C(777777777));
    for (int i = 4999; i >= 0; i--)
        CHECK_EQUAL(syn_clock_map(backwards, BASE + i * INT64_C(777777777)), local[i]);
    syn_clock_close(forwards);
    syn_clock_close(backwards);
}

static void plain_drift_is_exact(void)
{
    struct syn_clock_spec spec = {.base_ns = BASE, .offset_ns = 50, .drift_ppb = -40000,
                                  .swing_period_ns = SECOND};
    struct syn_clock *clock = open_clock(&spec);
    CHECK_EQUAL(syn_clock_map(clock, BASE), BASE + 50);
    CHECK_EQUAL(syn_clock_map(clock, BASE + 1000 * SECOND), BASE + 1000 * SECOND + 50 - 40000000);
    CHECK_EQUAL(syn_clock_map(clock, BASE - SECOND), BASE - SECOND + 50 + 40000);
    syn_clock_close(clock);
}

static void steps_step_and_turn_back(void)
{
    struct syn_clock_spec spec = {.base_ns = BASE, .swing_period_ns = SECOND};
    struct syn_clock_step steps[] = {{BASE - 1, 999}, {BASE + 10 * SECOND, 500},
                                     {BASE + 20 * SECOND, -2000}};
    struct syn_clock *clock = syn_clock_open(&spec, steps, 3);
    CHECK_EQUAL(syn_clock_map(clock, BASE), BASE);
    CHECK_EQUAL(syn_clock_map(clock, BASE + 10 * SECOND - 1), BASE + 10 * SECOND - 1);
    CHECK_EQUAL(syn_clock_map(clock, BASE + 10 * SECOND), BASE + 10 * SECOND + 500);
    CHECK_EQUAL(syn_clock_map(clock, BASE + 20 * SECOND), BASE + 20 * SECOND - 1500);
    /* A reading that was skipped belongs to the step, one shown twice to its later showing. */
    CHECK_EQUAL(syn_clock_unmap(clock, BASE + 10 * SECOND + 100), BASE + 10 * SECOND);
    CHECK_EQUAL(syn_clock_unmap(clock, BASE + 20 * SECOND - 1000), BASE + 20 * SECOND + 500);
    syn_clock_close(clock);
    struct syn_clock_step turned[] = {{5, 1}, {5, 1}};
    CHECK(syn_clock_open(&spec, turned, 2) == NULL);
}

static void *read_all(void *argument)
{
    struct syn_clock *clock = argument;
    for (int64_t i = 0; i < 20000; i++)
        CHECK(syn_clock_map(clock, BASE + i * SECOND / 3) != 0);
    return NULL;
}

static void threads_share_a_clock(void)
{
    struct syn_clock_spec spec = wild();
    struct syn_clock *clock = open_clock(&spec);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, read_all, clock), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    syn_clock_close(clock);
}

/* Two processes' clocks follow one tape: what one adjusts, the other reads. */
static void a_tape_adjusts_every_follower(void)
{
    struct syn_clock_spec spec = {.base_ns = BASE, .swing_period_ns = SECOND};
    struct syn_clock_step steps[] = {{BASE + 15 * SECOND, 7}};
    struct syn_clock *clock = syn_clock_open(&spec, steps, 1);
    struct syn_clock *other = syn_clock_open(&spec, steps, 1);
    char path[] = "/tmp/syn_clock_tape.XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQUAL(syn_clock_adjust(clock, BASE, 1, 0), EINVAL);
    CHECK_EQUAL(syn_clock_follow(clock, path), EPROTO);
    CHECK_EQUAL(ftruncate(fd, sizeof(struct syn_clock_tape)), 0);
    CHECK_EQUAL(syn_clock_follow(clock, path), 0);
    CHECK_EQUAL(syn_clock_follow(other, path), 0);
    CHECK_EQUAL(syn_clock_adjust(clock, BASE + 10 * SECOND, 500, 1000), 0);
    CHECK_EQUAL(syn_clock_adjust(clock, BASE + 20 * SECOND, -2000, NAN), 0);
    CHECK_EQUAL(syn_clock_adjust(clock, 0, 0, -1000), 0); /* not before the last */
    CHECK_EQUAL(syn_clock_adjust(clock, BASE + 30 * SECOND, 0, 2e7), EINVAL);
    CHECK_EQUAL(syn_clock_map(other, BASE + 10 * SECOND - 1), BASE + 10 * SECOND - 1);
    CHECK_EQUAL(syn_clock_map(other, BASE + 12 * SECOND), BASE + 12 * SECOND + 2500);
    CHECK_EQUAL(syn_clock_map(other, BASE + 20 * SECOND), BASE + 20 * SECOND + 8507);
    CHECK_EQUAL(syn_clock_map(other, BASE + 22 * SECOND), BASE + 22 * SECOND + 6507);
    CHECK_EQUAL((int64_t)syn_clock_rate_ppb(other, BASE + 22 * SECOND), -1000);
    /* The host's other clocks: one without the steps (7 ns of them from the spec), one without all. */
    CHECK_EQUAL(syn_clock_steady(other, BASE + 12 * SECOND), BASE + 12 * SECOND + 2000);
    CHECK_EQUAL(syn_clock_steady(other, BASE + 20 * SECOND), BASE + 20 * SECOND + 10000);
    CHECK_EQUAL(syn_clock_steady(other, BASE + 22 * SECOND), BASE + 22 * SECOND + 8000);
    CHECK_EQUAL(syn_clock_raw(other, BASE + 22 * SECOND), BASE + 22 * SECOND);
    for (int64_t at = BASE; at < BASE + 40 * SECOND; at += SECOND / 7 + 5000) {
        int64_t again = syn_clock_unmap(other, syn_clock_map(clock, at));
        CHECK(again >= at - 1 && again <= at + 1);
    }
    /* In the reading that the step at 10 s skipped, and before everything. */
    CHECK_EQUAL(syn_clock_unmap(other, BASE + 10 * SECOND + 100), BASE + 10 * SECOND);
    CHECK_EQUAL(syn_clock_unmap(other, BASE + 5), BASE + 5);
    syn_clock_close(clock);
    syn_clock_close(other);
    close(fd);
    unlink(path);
}

struct waiting {
    struct syn_clock *clock;
    uint64_t seen;
    int stepped;
};

static void *wait_for_step(void *argument)
{
    struct waiting *waiting = argument;
    for (int i = 0; i < 50 && !waiting->stepped; i++)
        waiting->stepped = syn_clock_wait(waiting->clock, &waiting->seen, 1000);
    return NULL;
}

/* A change of the rate wakes nobody for good, a step does, in whichever process it is made. */
static void a_step_on_the_tape_wakes_who_waits(void)
{
    struct syn_clock_spec spec = {.base_ns = BASE, .swing_period_ns = SECOND};
    struct syn_clock *clock = syn_clock_open(&spec, NULL, 0), *other = syn_clock_open(&spec, NULL, 0);
    char path[] = "/tmp/syn_clock_tape.XXXXXX";
    int fd = mkstemp(path);
    struct waiting waiting = {other, 0, 0};
    pthread_t thread;
    CHECK_EQUAL(syn_clock_wait(clock, &waiting.seen, 1), 0);
    CHECK_EQUAL(ftruncate(fd, sizeof(struct syn_clock_tape)), 0);
    CHECK_EQUAL(syn_clock_follow(clock, path), 0);
    CHECK_EQUAL(syn_clock_follow(other, path), 0);
    CHECK_EQUAL(syn_clock_adjust(clock, BASE + SECOND, 0, 500000), 0);
    CHECK_EQUAL(syn_clock_wait(other, &waiting.seen, 1000), 0);
    CHECK_EQUAL(waiting.seen, 1);
    CHECK_EQUAL(pthread_create(&thread, NULL, wait_for_step, &waiting), 0);
    CHECK_EQUAL(syn_clock_adjust(clock, BASE + 2 * SECOND, 0, 1000), 0);
    CHECK_EQUAL(syn_clock_adjust(clock, BASE + 3 * SECOND, 1, NAN), 0);
    pthread_join(thread, NULL);
    CHECK_EQUAL(waiting.stepped, 1);
    CHECK_EQUAL(waiting.seen, 3);
    syn_clock_close(clock);
    syn_clock_close(other);
    close(fd);
    unlink(path);
}

int main(void)
{
    a_step_on_the_tape_wakes_who_waits();
    a_tape_adjusts_every_follower();
    the_order_of_questions_does_not_matter();
    plain_drift_is_exact();
    steps_step_and_turn_back();
    threads_share_a_clock();
    return 0;
}
