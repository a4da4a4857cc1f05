/* When a pair of NICs is taken for silent: tables. */
#include "check.h"
#include "hush.h"

static const int64_t MS = 1000000, S = 1000000000;
static struct syn_hush hush;

/* Answers every `every_ms` from `from_ns` on, for so many; the last one's instant. */
static int64_t answers(int64_t from_ns, int64_t every_ms, int count)
{
    int64_t at_ns = from_ns;
    for (int i = 0; i < count; i++, at_ns += every_ms * MS)
        syn_hush_answered(&hush, every_ms * MS, at_ns);
    return at_ns - every_ms * MS;
}

static void nothing_is_said_of_who_has_never_answered(void)
{
    syn_hush_open(&hush, S);
    CHECK_EQUAL(syn_hush_due_ns(&hush), INT64_MAX);
    CHECK_EQUAL(syn_hush_doubt_ns(&hush, 4 * MS), INT64_MAX);
}

static void hushed_is_told_once_a_silence(void)
{
    syn_hush_open(&hush, S);
    int64_t last_ns = answers(S, 4, 10);
    CHECK_EQUAL(syn_hush_due_ns(&hush), last_ns + SYN_HUSH_NS);
    hush.reported = 1;
    CHECK_EQUAL(syn_hush_due_ns(&hush), INT64_MAX);
    last_ns = answers(last_ns + S, 4, 1);
    CHECK_EQUAL(syn_hush_due_ns(&hush), last_ns + SYN_HUSH_NS);
}

static void doubt_comes_once_a_silence_and_not_too_often(void)
{
    syn_hush_open(&hush, S);
    int64_t last_ns = answers(S, 4, 1000);
    CHECK_EQUAL(syn_hush_doubt_ns(&hush, 4 * MS), last_ns + SYN_MIN_DOUBT_NS);
    CHECK_EQUAL(syn_hush_doubt_ns(&hush, 12 * MS), last_ns + 18 * MS);
    int64_t burst_ns = last_ns + 18 * MS;
    syn_hush_burst(&hush, burst_ns);
    CHECK(syn_hush_bursting(&hush));
    CHECK_EQUAL(syn_hush_doubt_ns(&hush, 12 * MS), INT64_MAX);
    last_ns = answers(burst_ns + MS, 4, 1);
    CHECK(!syn_hush_bursting(&hush));
    CHECK_EQUAL(syn_hush_doubt_ns(&hush, 4 * MS), burst_ns + SYN_BURST_PAUSE_NS);
    last_ns = answers(last_ns + S, 4, 1);
    CHECK_EQUAL(syn_hush_doubt_ns(&hush, 4 * MS), last_ns + SYN_MIN_DOUBT_NS);
    hush.reported = 1;
    CHECK_EQUAL(syn_hush_doubt_ns(&hush, 4 * MS), INT64_MAX);
}

static void a_silence_that_ends_is_kept(void)
{
    syn_hush_open(&hush, S);
    int64_t last_ns = answers(2 * S, 4, 10);
    CHECK_EQUAL(hush.gap_ns, 0); /* the beginning is no silence */
    syn_hush_answered(&hush, 4 * MS, last_ns + SYN_HUSH_NS);
    CHECK_EQUAL(hush.gap_ns, 0);
    last_ns += SYN_HUSH_NS;
    int64_t back_ns = last_ns + SYN_HUSH_NS + 1;
    syn_hush_answered(&hush, 4 * MS, back_ns);
    CHECK_EQUAL(hush.gap_ns, SYN_HUSH_NS + 1);
    CHECK_EQUAL(hush.steady_ns, back_ns);
    last_ns = answers(back_ns + 4 * MS, 4, 10);
    CHECK_EQUAL(hush.steady_ns, back_ns);
    syn_hush_answered(&hush, 12 * MS, last_ns + 36 * MS); /* of a pair that is asked seldom */
    CHECK_EQUAL(hush.steady_ns, back_ns);
    syn_hush_answered(&hush, 12 * MS, last_ns + 36 * MS + 36 * MS + 1);
    CHECK_EQUAL(hush.gap_ns, 36 * MS + 1);
}

int main(void)
{
    a_silence_that_ends_is_kept();
    nothing_is_said_of_who_has_never_answered();
    hushed_is_told_once_a_silence();
    doubt_comes_once_a_silence_and_not_too_often();
    return 0;
}
