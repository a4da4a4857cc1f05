/* When a pair of NICs is taken for silent: tables. */
#include "check.h"
#include "pair_silence.h"

static const int64_t MS = 1000000, S = 1000000000;
static struct syn_pair_silence silence;

/* Answers every `every_ms` from `from_ns` on, for so many; the last one's instant. */
static int64_t answers(int64_t from_ns, int64_t every_ms, int count)
{
    int64_t at_ns = from_ns;
    for (int i = 0; i < count; i++, at_ns += every_ms * MS)
        syn_pair_silence_answered(&silence, every_ms * MS, at_ns);
    return at_ns - every_ms * MS;
}

static void nothing_is_said_of_who_has_never_answered(void)
{
    syn_pair_silence_open(&silence, S);
    CHECK_EQUAL(syn_pair_unresponsive_ns(&silence), INT64_MAX);
    CHECK_EQUAL(syn_pair_suspect_ns(&silence, 4 * MS), INT64_MAX);
}

static void unresponsive_is_reported_once_a_silence(void)
{
    syn_pair_silence_open(&silence, S);
    int64_t last_ns = answers(S, 4, 10);
    CHECK_EQUAL(syn_pair_unresponsive_ns(&silence), last_ns + SYN_SILENCE_NS);
    silence.reported = 1;
    CHECK_EQUAL(syn_pair_unresponsive_ns(&silence), INT64_MAX);
    last_ns = answers(last_ns + S, 4, 1);
    CHECK_EQUAL(syn_pair_unresponsive_ns(&silence), last_ns + SYN_SILENCE_NS);
}

static void a_burst_comes_once_a_silence_and_not_too_often(void)
{
    syn_pair_silence_open(&silence, S);
    int64_t last_ns = answers(S, 4, 1000);
    CHECK_EQUAL(syn_pair_suspect_ns(&silence, 4 * MS), last_ns + SYN_MIN_SUSPECT_NS);
    CHECK_EQUAL(syn_pair_suspect_ns(&silence, 12 * MS), last_ns + 18 * MS);
    int64_t burst_ns = last_ns + 18 * MS;
    syn_pair_silence_burst(&silence, burst_ns);
    CHECK(syn_pair_silence_bursting(&silence));
    CHECK_EQUAL(syn_pair_suspect_ns(&silence, 12 * MS), INT64_MAX);
    last_ns = answers(burst_ns + MS, 4, 1);
    CHECK(!syn_pair_silence_bursting(&silence));
    CHECK_EQUAL(syn_pair_suspect_ns(&silence, 4 * MS), burst_ns + SYN_BURST_PAUSE_NS);
    last_ns = answers(last_ns + S, 4, 1);
    CHECK_EQUAL(syn_pair_suspect_ns(&silence, 4 * MS), last_ns + SYN_MIN_SUSPECT_NS);
    silence.reported = 1;
    CHECK_EQUAL(syn_pair_suspect_ns(&silence, 4 * MS), INT64_MAX);
}

static void a_silence_that_ends_is_kept(void)
{
    syn_pair_silence_open(&silence, S);
    int64_t last_ns = answers(2 * S, 4, 10);
    CHECK_EQUAL(silence.gap_ns, 0); /* the beginning is no silence */
    syn_pair_silence_answered(&silence, 4 * MS, last_ns + SYN_SILENCE_NS);
    CHECK_EQUAL(silence.gap_ns, 0);
    last_ns += SYN_SILENCE_NS;
    int64_t back_ns = last_ns + SYN_SILENCE_NS + 1;
    syn_pair_silence_answered(&silence, 4 * MS, back_ns);
    CHECK_EQUAL(silence.gap_ns, SYN_SILENCE_NS + 1);
    CHECK_EQUAL(silence.steady_ns, back_ns);
    last_ns = answers(back_ns + 4 * MS, 4, 10);
    CHECK_EQUAL(silence.steady_ns, back_ns);
    syn_pair_silence_answered(&silence, 12 * MS, last_ns + 36 * MS); /* of a pair that is asked seldom */
    CHECK_EQUAL(silence.steady_ns, back_ns);
    syn_pair_silence_answered(&silence, 12 * MS, last_ns + 36 * MS + 36 * MS + 1);
    CHECK_EQUAL(silence.gap_ns, 36 * MS + 1);
}

int main(void)
{
    a_silence_that_ends_is_kept();
    nothing_is_said_of_who_has_never_answered();
    unresponsive_is_reported_once_a_silence();
    a_burst_comes_once_a_silence_and_not_too_often();
    return 0;
}
