#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
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

static void write_now(struct syn_clock_page *page, const struct syn_clock_piece *piece)
{
    int64_t mono_ns = clock_ns(CLOCK_MONOTONIC);
    syn_clock_page_write(page, piece, clock_ns(CLOCK_REALTIME), mono_ns, mono_ns + 10 * SECOND);
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
    int64_t oldest = 2 * SYN_CLOCK_PIECES + 1;
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
    int64_t real_ns = clock_ns(CLOCK_REALTIME), mono_ns = clock_ns(CLOCK_MONOTONIC);
    struct syn_clock_piece piece = piece_from(real_ns - 5 * SECOND);
    syn_clock_page_write(page, &piece, real_ns, mono_ns, mono_ns - 1);
    CHECK_EQUAL(syn_clock_reader_open(&reader, path), 0);
    CHECK_EQUAL(syn_clock_reader_now(&reader, &now), 0);
    CHECK_EQUAL(now.status, SYN_CLOCK_UNKNOWN);
    CHECK_EQUAL(now.latest_ns, INT64_MAX);
    for (int64_t step_ns = -10 * SECOND / 1000; step_ns < SECOND; step_ns += SECOND / 500) {
        real_ns = clock_ns(CLOCK_REALTIME), mono_ns = clock_ns(CLOCK_MONOTONIC);
        syn_clock_page_write(page, NULL, real_ns - step_ns, mono_ns, mono_ns + 10 * SECOND);
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
    page = syn_clock_page_open("/nonexistent/clock", SYN_CLOCK_REALTIME, &error);
    CHECK(page == NULL && error == ENOENT);
}

static atomic_bool done;
static atomic_bool enough;

/* Every piece says the same number in all its fields: a torn one would not. Goes on until the reader
 * has had its turn, however busy the machine is. */
static void *write_much(void *argument)
{
    for (int64_t i = 1; i <= 400000 || (!atomic_load(&enough) && i < INT64_C(1) << 28); i++) {
        struct syn_clock_piece piece = {i, i, (double)i, 0, 0, 0, (double)i, 0, (double)i,
                                        SYN_CLOCK_SYNCHRONIZED, (uint32_t)i};
        syn_clock_page_write(argument, &piece, i, i, i);
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
        CHECK_EQUAL(then.latest_ns - then.fleet_ns, 5 * i + 1);
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
    a_successor_goes_on_and_foreign_files_are_refused();
    readers_never_see_half_a_piece();
    clock_bounds_layouts();
    unlink(path);
    rmdir(directory);
    return 0;
}
