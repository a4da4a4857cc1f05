#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "syn_clock_page.h"

static char directory[] = "/tmp/syn_clock_page.XXXXXX";
static char path[64];

static const int64_t SECOND = 1000000000;

static int64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec;
}

static struct syn_clock_page *fresh_page(void)
{
    int error = 0;
    unlink(path);
    struct syn_clock_page *page = syn_clock_page_open(path, SYN_CLOCK_REALTIME, &error);
    CHECK(page != NULL && error == 0);
    page->bound_sigmas = 4;
    return page;
}

static struct syn_clock_piece piece_from(int64_t from_ns)
{
    return (struct syn_clock_piece){.from_ns = from_ns, .ref_ns = from_ns, .offset_ns = 1000,
                                    .sigma_ns = 25, .status = SYN_CLOCK_SYNCHRONIZED};
}

static const struct syn_clock_reader MACHINE;
static const struct syn_clock_pace PACE = {.rate_tolerance_ppb = 2000};

static void write_at(struct syn_clock_page *page, const struct syn_clock_piece *piece,
                     struct syn_clock_moment now)
{
    syn_clock_page_write(page, piece, &now, &PACE, clock_ns(CLOCK_MONOTONIC) + 10 * SECOND);
}

static void write_now(struct syn_clock_page *page, const struct syn_clock_piece *piece)
{
    struct syn_clock_moment now;
    syn_clock_look(&MACHINE, &now);
    write_at(page, piece, now);
}

static void a_page_that_was_never_written_is_unknown(void)
{
    struct syn_clock_page *page = fresh_page();
    struct syn_clock_reader reader;
    struct syn_clock_reading now;
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
    CHECK_EQUAL(now.status, SYN_CLOCK_UNKNOWN);
    CHECK_EQUAL(now.earliest_ns, INT64_MIN);
    CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, 5, &now), ENODATA);
    struct stat stat_;
    CHECK_EQUAL(stat(path, &stat_), 0);
    CHECK_EQUAL(stat_.st_mode & 0777, 0644);
    syn_clock_reader_close(&reader);
    syn_clock_page_close(page);
}

static void now_lies_in_its_bound(void)
{
    struct syn_clock_page *page = fresh_page();
    struct syn_clock_reader reader;
    struct syn_clock_reading now;
    int64_t start_ns = clock_ns(CLOCK_REALTIME);
    struct syn_clock_piece piece = piece_from(start_ns);
    write_now(page, &piece);
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
    CHECK_EQUAL(now.status, SYN_CLOCK_SYNCHRONIZED);
    CHECK(now.fleet_ns >= start_ns + 1000 && now.fleet_ns <= clock_ns(CLOCK_REALTIME) + 1000);
    CHECK_EQUAL(now.latest_ns - now.fleet_ns, 101);
    CHECK_EQUAL(now.fleet_ns - now.earliest_ns, 101);
    syn_clock_reader_close(&reader);
    syn_clock_page_close(page);
}

static void a_slew_shrinks_and_widens_the_bound(void)
{
    struct syn_clock_page *page = fresh_page();
    struct syn_clock_reader reader;
    struct syn_clock_reading then;
    struct syn_clock_piece piece = piece_from(SECOND);
    piece.residual_ns = -300;
    piece.slew_ppb = 100;
    write_now(page, &piece);
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    for (int64_t s = 0; s < 5; s++) {
        CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, (1 + s) * SECOND, &then), 0);
        int64_t left_ns = s < 3 ? 300 - 100 * s : 0;
        CHECK_EQUAL(then.fleet_ns, (1 + s) * SECOND + 1000 - left_ns);
        CHECK_EQUAL(then.latest_ns - then.fleet_ns, 101 + left_ns);
    }
    syn_clock_reader_close(&reader);
    syn_clock_page_close(page);
}

static void the_past_keeps_its_own_piece(void)
{
    struct syn_clock_page *page = fresh_page();
    struct syn_clock_reader reader;
    struct syn_clock_reading then;
    for (int64_t i = 1; i <= 3 * SYN_CLOCK_PIECES; i++) {
        struct syn_clock_piece piece = piece_from(i * SECOND);
        piece.offset_ns = (double)i;
        write_now(page, &piece);
    }
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    int64_t oldest = 2 * SYN_CLOCK_PIECES + 2; /* one place is the pace's */
    for (int64_t i = oldest; i <= 3 * SYN_CLOCK_PIECES; i += 97) {
        CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, i * SECOND + 7, &then), 0);
        CHECK_EQUAL(then.fleet_ns, i * SECOND + 7 + i);
    }
    CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, oldest * SECOND - 1, &then), ENODATA);
    CHECK_EQUAL(then.status, SYN_CLOCK_UNKNOWN);
    syn_clock_reader_close(&reader);
    syn_clock_page_close(page);
}

static void a_dead_writer_and_a_step_are_noticed(void)
{
    struct syn_clock_page *page = fresh_page();
    struct syn_clock_reader reader;
    struct syn_clock_reading now;
    struct syn_clock_moment seen;
    syn_clock_look(&MACHINE, &seen);
    struct syn_clock_piece piece = piece_from(seen.local_ns - 5 * SECOND);
    syn_clock_page_write(page, &piece, &seen, &PACE, seen.mono_ns - 1);
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
    CHECK_EQUAL(now.status, SYN_CLOCK_UNKNOWN);
    CHECK_EQUAL(now.latest_ns, INT64_MAX);
    for (int64_t step_ns = -10 * SECOND / 1000; step_ns < SECOND; step_ns += SECOND / 500) {
        syn_clock_look(&MACHINE, &seen);
        int64_t real_ns = seen.local_ns;
        seen.local_ns -= step_ns;
        write_at(page, NULL, seen);
        CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
        CHECK_EQUAL(now.status, step_ns == 0 ? SYN_CLOCK_SYNCHRONIZED : SYN_CLOCK_DISRUPTED);
        /* A stamp of after the step, one of before it. */
        CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, clock_ns(CLOCK_REALTIME), &now), 0);
        CHECK_EQUAL(now.status, step_ns == 0 ? SYN_CLOCK_SYNCHRONIZED : SYN_CLOCK_DISRUPTED);
        CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, real_ns - SECOND / 2 - step_ns, &now), 0);
        CHECK_EQUAL(now.status, SYN_CLOCK_SYNCHRONIZED);
    }
    page->local_clock = SYN_CLOCK_SYNTHETIC;
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), ENOTSUP);
    syn_clock_reader_close(&reader);
    syn_clock_page_close(page);
}

/* A host whose clocks are numbers. */
struct host {
    int64_t local_ns, mono_ns, raw_ns;
};

static int64_t local_of(void *host)
{
    return ((struct host *)host)->local_ns;
}

static int64_t mono_of(void *host)
{
    return ((struct host *)host)->mono_ns;
}

static int64_t raw_of(void *host)
{
    return ((struct host *)host)->raw_ns;
}

static void small_steps_and_slews_are_seen_before_the_writer_sees_them(void)
{
    struct syn_clock_page *page = fresh_page();
    struct host host = {1000 * SECOND, 70 * SECOND, 60 * SECOND};
    struct syn_clock_piece piece = piece_from(900 * SECOND);
    struct syn_clock_reader reader;
    struct syn_clock_reading now;
    piece.ref_ns = host.local_ns;
    page->local_clock = SYN_CLOCK_SYNTHETIC;
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    reader.context = &host;
    reader.local = local_of, reader.steady = mono_of, reader.raw = raw_of;
    struct syn_clock_pace pace = {.rate_ppb = 30000, .rate_tolerance_ppb = 50};
    struct syn_clock_moment seen = {host.local_ns, host.mono_ns, host.raw_ns, 100};
    int64_t void_ns = clock_ns(CLOCK_MONOTONIC) + 100 * SECOND;
    syn_clock_page_write(page, &piece, &seen, &pace, void_ns);
    /* 200 ms later; the clock runs 30 ppm fast, as it did. */
    host = (struct host){host.local_ns + 200006000, host.mono_ns + 200006000,
                         host.raw_ns + 200000000};
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
    CHECK_EQUAL(now.status, SYN_CLOCK_SYNCHRONIZED);
    CHECK_EQUAL(now.latest_ns - now.fleet_ns, 101);
    for (int64_t step_ns = -19000; step_ns <= 19000; step_ns += 250) {
        struct host stepped = {host.local_ns + step_ns, host.mono_ns, host.raw_ns};
        reader.context = &stepped;
        CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
        CHECK_EQUAL(now.status, step_ns ? SYN_CLOCK_DISRUPTED : SYN_CLOCK_SYNCHRONIZED);
    }
    /* Slewed since somewhere between: by 20 and 500 ppm, and until nothing is known any more. */
    for (int64_t by_ns = -128000; by_ns <= 128000; by_ns += 2000) {
        struct host slewed = {host.local_ns + by_ns, host.mono_ns + by_ns, host.raw_ns};
        reader.context = &slewed;
        CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
        CHECK_EQUAL(now.status, SYN_CLOCK_SYNCHRONIZED);
        CHECK(now.earliest_ns <= host.local_ns + 1000 && now.latest_ns >= host.local_ns + 1000);
        CHECK(now.latest_ns - now.fleet_ns <= llabs(by_ns) + 300);
        CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, seen.local_ns - 5, &now), 0);
        CHECK_EQUAL(now.latest_ns - now.fleet_ns, 101);
    }
    struct host slewed = {host.local_ns + SECOND, host.mono_ns + SECOND, host.raw_ns};
    reader.context = &slewed;
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
    CHECK_EQUAL(now.status, SYN_CLOCK_DISRUPTED);
    reader.steady = NULL; /* a program that knows only the clock itself */
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
    CHECK_EQUAL(now.status, SYN_CLOCK_SYNCHRONIZED);
    syn_clock_reader_close(&reader);
    syn_clock_page_close(page);
}

static void no_bound_is_wider_than_a_millisecond(void)
{
    struct syn_clock_page *page = fresh_page();
    struct syn_clock_reader reader;
    struct syn_clock_reading then;
    struct syn_clock_piece piece = piece_from(SECOND);
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    for (int wide = 0; wide < 2; wide++) {
        piece.from_ns += wide;
        piece.asymmetry_ns = 999000 + 1000 * wide;
        piece.sigma_ns = 1;
        write_now(page, &piece);
        CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, 2 * SECOND, &then), 0);
        CHECK_EQUAL(then.status, wide ? SYN_CLOCK_DISRUPTED : SYN_CLOCK_SYNCHRONIZED);
        CHECK_EQUAL(then.latest_ns == INT64_MAX, wide);
    }
    syn_clock_reader_close(&reader);
    syn_clock_page_close(page);
}

/* As a page was written before there was a pace in it. */
static void an_older_writers_page_is_read_as_ever(void)
{
    struct syn_clock_page *page = fresh_page();
    struct syn_clock_reader reader;
    struct syn_clock_reading now;
    struct syn_clock_moment seen;
    syn_clock_look(&MACHINE, &seen);
    struct syn_clock_piece piece = piece_from(seen.local_ns - SECOND);
    piece.ref_ns = seen.local_ns;
    seen.local_ns += 15000;
    write_at(page, &piece, seen);
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
    CHECK_EQUAL(now.status, SYN_CLOCK_DISRUPTED);
    memset(&page->pieces[1], 0, sizeof page->pieces[1]);
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
    CHECK_EQUAL(now.status, SYN_CLOCK_SYNCHRONIZED);
    syn_clock_reader_close(&reader);
    syn_clock_page_close(page);
}

/* Somebody sets CLOCK_REALTIME: here we, by a nanosecond forwards and one back, where we may. */
static void the_kernel_tells_when_the_clock_is_set(void)
{
    int fd = syn_set_watch_open();
    CHECK(fd >= 0);
    CHECK_EQUAL(syn_set_watch_wait(fd, 0), 0);
    for (int turn = 0; turn < 2; turn++) {
        struct timex by = {.modes = ADJ_SETOFFSET | ADJ_NANO,
                           .time = {turn ? -1 : 0, turn ? 999999999 : 1}};
        if (clock_adjtime(CLOCK_REALTIME, &by) < 0) {
            printf("not tried: CLOCK_REALTIME cannot be set here: %s\n", strerror(errno));
            break;
        }
        CHECK_EQUAL(syn_set_watch_wait(fd, 1000), 1);
        CHECK_EQUAL(syn_set_watch_wait(fd, 0), 0);
    }
    close(fd);
}

static void a_successor_goes_on_and_foreign_files_are_refused(void)
{
    struct syn_clock_page *page = fresh_page();
    struct syn_clock_piece piece = piece_from(SECOND);
    struct syn_clock_reader reader;
    struct syn_clock_reading then;
    int error = 0;
    write_now(page, &piece);
    page->generation++; /* died inside an update */
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, 2 * SECOND, &then), EAGAIN);
    syn_clock_page_close(page);
    page = syn_clock_page_open(path, SYN_CLOCK_REALTIME, &error);
    CHECK(page != NULL);
    CHECK_EQUAL(page->written, 1);
    write_now(page, NULL);
    CHECK_EQUAL(page->generation & 1, 0);
    CHECK_EQUAL(syn_clock_reader_to_fleet(&reader, 2 * SECOND, &then), 0);
    page->magic ^= 1;
    struct syn_clock_reader other;
    CHECK_EQUAL(syn_clock_reader_open(&other, path), EPROTO);
    CHECK_EQUAL(truncate(path, 100), 0);
    CHECK_EQUAL(syn_clock_reader_open(&other, path), EPROTO);
    unlink(path);
    CHECK_EQUAL(syn_clock_reader_open(&other, path), ENOENT);
    reader.page = NULL; /* its file was truncated under it */
    char nowhere[128];
    snprintf(nowhere, sizeof nowhere, "%s/none/clock", directory);
    page = syn_clock_page_open(nowhere, SYN_CLOCK_REALTIME, &error);
    CHECK(page == NULL && error == ENOENT);
}

static atomic_bool done;
static atomic_bool enough;

/* Every piece says the same number in all its fields: a torn one would not. Goes on until the reader
 * has had its turn, however busy the machine is. */
static void *write_much(void *argument)
{
    for (int64_t i = 1; i <= 400000 || (!atomic_load(&enough) && i < INT64_C(1) << 28); i++) {
        double small = (double)(i % 100000);
        struct syn_clock_piece piece = {i, i, (double)i, 0, 0, 0, small, 0, small,
                                        SYN_CLOCK_SYNCHRONIZED, (uint32_t)i};
        struct syn_clock_moment now = {i, i, i, i};
        syn_clock_page_write(argument, &piece, &now, &PACE, i);
    }
    atomic_store(&done, 1);
    return NULL;
}

static void readers_never_see_half_a_piece(void)
{
    struct syn_clock_page *page = fresh_page();
    struct syn_clock_reader reader;
    struct syn_clock_reading then;
    pthread_t writer;
    int64_t reads = 0, newest = 0;
    page->local_clock = SYN_CLOCK_SYNTHETIC; /* its instants are made up: nothing to check them with */
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    CHECK_EQUAL(pthread_create(&writer, NULL, write_much, page), 0);
    while (!atomic_load(&done)) {
        int failed = syn_clock_reader_to_fleet(&reader, INT64_C(1) << 40, &then);
        if (failed == ENODATA || failed == EAGAIN)
            continue;
        CHECK_EQUAL(failed, 0);
        int64_t i = then.steps;
        CHECK(i >= newest);
        newest = i;
        CHECK_EQUAL(then.fleet_ns, (INT64_C(1) << 40) + i);
        CHECK_EQUAL(then.latest_ns - then.fleet_ns, 5 * (i % 100000) + 1);
        if (++reads == 100)
            atomic_store(&enough, 1);
    }
    pthread_join(writer, NULL);
    CHECK(reads > 0);
    syn_clock_reader_close(&reader);
    syn_clock_page_close(page);
}

/* docs/PROTOCOL.md of aws/clock-bound, byte for byte. */
static void clock_bounds_layouts(void)
{
    static const uint8_t head[] = {0x4e, 0x5a, 0x4d, 0x41, 0x00, 0x02, 0x42, 0x43};
    struct syn_bound bound = {.as_of_ns = 7 * SECOND + 8, .void_after_ns = 17 * SECOND + 9,
                              .bound_ns = 0x1122334455, .disruptions = 0x66778899aabbccdd,
                              .max_drift_ppb = 0x01020304, .status = SYN_CLOCK_SYNCHRONIZED};
    for (uint16_t version = 1; version <= 2; version++) {
        int error = 0;
        unlink(path);
        uint8_t *segment = syn_bound_open(path, version, &error);
        CHECK(segment != NULL);
        uint16_t generation = 0;
        memcpy(&generation, segment + 14, 2);
        CHECK_EQUAL(generation, 0);
        syn_bound_write(segment, &bound);
        uint8_t want[80] = {0};
        uint32_t size = version == 1 ? 72 : 80;
        uint16_t second_generation = 2;
        int64_t times[] = {7, 8, 17, 9, 0x1122334455};
        int32_t status = 1;
        memcpy(want, head, 8);
        memcpy(want + 8, &size, 4);
        memcpy(want + 12, &version, 2);
        memcpy(want + 14, &second_generation, 2);
        memcpy(want + 16, times, 40);
        if (version == 2)
            memcpy(want + 56, &bound.disruptions, 8);
        memcpy(want + (version == 1 ? 56 : 64), &bound.max_drift_ppb, 4);
        memcpy(want + (version == 1 ? 64 : 68), &status, 4);
        CHECK_EQUAL(memcmp(segment, want, size), 0);
        for (int i = 0; i < 40000; i++) {
            syn_bound_write(segment, &bound);
            memcpy(&generation, segment + 14, 2);
            CHECK(generation >= 2 && generation % 2 == 0);
        }
        syn_bound_close(segment);
        uint8_t *again = syn_bound_open(path, version, &error);
        uint16_t kept = 0;
        memcpy(&kept, again + 14, 2);
        CHECK_EQUAL(kept, generation);
        syn_bound_close(again);
    }
    int error = 0;
    CHECK(syn_bound_open(path, 3, &error) == NULL && error == EINVAL);
    unlink(path);
}

int main(void)
{
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/clock", directory);
    a_page_that_was_never_written_is_unknown();
    now_lies_in_its_bound();
    a_slew_shrinks_and_widens_the_bound();
    the_past_keeps_its_own_piece();
    a_dead_writer_and_a_step_are_noticed();
    small_steps_and_slews_are_seen_before_the_writer_sees_them();
    no_bound_is_wider_than_a_millisecond();
    an_older_writers_page_is_read_as_ever();
    the_kernel_tells_when_the_clock_is_set();
    a_successor_goes_on_and_foreign_files_are_refused();
    readers_never_see_half_a_piece();
    clock_bounds_layouts();
    unlink(path);
    rmdir(directory);
    return 0;
}
