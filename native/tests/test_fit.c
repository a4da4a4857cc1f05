#include "check.h"
#include "syn_fit.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { MANY = 400 };

static const struct syn_fit_options OPTIONS = {
    .max_drift = 2e-4,
    .soft_range = 8e-6,
    .hard_steps = 44,
    .soft_steps = 26,
    .depths = {5, 20, 100},
    .floor_probes = 5,
    .depth_spread = 4,
    .soft_sigmas = 1.12,
    .pile_share = 0.4,
    .same_start_ns = 1,
    .min_pile = 3,
    .sharp_pile = 5,
    .sharp_contrast = 1.5,
    .min_sigma_ns = 1,
    .stamp_correlation = 0.1,
    .thin_pile = 20,
    .min_noise_ns = 3,
    .max_noise_ns = 2000,
    .start_noise_ns = 20,
    .early_ns = 300,
    .early_share = 1e-3,
    .settled = 0.004,
    .min_pure = 2,
    .prior_pure = 0.2,
    .rounds = 14,
    .classes = 7,
};

static uint64_t seed = 1;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

struct window {
    double t[2 * MANY];
    double y[2 * MANY];
    uint8_t purity[2 * MANY];
};

/* Half of the probes at the floor within noise_ns, the others exponentially above it. */
static void fill(struct window *w, size_t forward, size_t count, double theta, double slope,
                 double noise_ns)
{
    for (size_t i = 0; i < count; i++) {
        double wait = i % 2 ? -3000 * log(1 - uniform()) : 0;
        double delay = 5000 + wait + noise_ns * (uniform() + uniform() + uniform() - 1.5);
        w->t[i] = (uniform() - 0.5) * 4e9;
        w->y[i] = theta + slope * w->t[i] + (i < forward ? delay : -delay);
        w->purity[i] = (uint8_t)(i % 7);
    }
}

static void test_finds_the_line(void)
{
    struct window w;
    struct syn_fit found;
    fill(&w, MANY, 2 * MANY, 1234, 12e-6, 20);
    struct syn_fit_points points = {w.t, w.y, w.purity, MANY, 2 * MANY, 4e9};
    CHECK(syn_fit_window(&points, 0, INFINITY, &OPTIONS, &found) == 0);
    CHECK(fabs((found.forward_ns - found.reverse_ns) / 2 - 1234) < 5);
    CHECK(fabs(found.slope - 12e-6) < 5e-9);
    CHECK(found.sharp && found.theta_var > 0);
}

static void test_few_and_degenerate_points(void)
{
    struct window w;
    struct syn_fit found;
    for (size_t forward = 1; forward < 12; forward++)
        for (size_t reverse = 1; reverse < 12; reverse++) {
            size_t count = forward + reverse;
            struct syn_fit_points points = {w.t, w.y, w.purity, forward, count, 4e9};
            fill(&w, forward, count, 0, 0, 20);
            CHECK(syn_fit_window(&points, 1e-6, 1e-9, &OPTIONS, &found) == 0);
            for (size_t i = 0; i < count; i++)
                w.t[i] = w.y[i] = 7;
            CHECK(syn_fit_window(&points, 0, INFINITY, &OPTIONS, &found) == 0);
            CHECK(isfinite(found.theta_var));
        }
}

static void test_many_random_windows_stay_in_their_arrays(void)
{
    struct window w;
    struct syn_fit found;
    for (int round = 0; round < 300; round++) {
        size_t forward = 1 + (size_t)(uniform() * (MANY - 1));
        size_t count = forward + 1 + (size_t)(uniform() * (MANY - 1));
        double scale = pow(10, uniform() * 9);
        fill(&w, forward, count, scale * uniform(), 1e-4 * uniform(), scale * 1e-3);
        struct syn_fit_points points = {w.t, w.y, w.purity, forward, count, 4e9};
        double sigma = round % 2 ? INFINITY : 1e-8;
        CHECK(syn_fit_window(&points, 1e-5, sigma, &OPTIONS, &found) == 0);
        CHECK(isfinite(found.slope) && isfinite(found.forward_ns) && isfinite(found.reverse_ns));
    }
}

static void test_refuses_what_is_no_window(void)
{
    struct window w;
    struct syn_fit found;
    fill(&w, 10, 20, 0, 0, 20);
    struct syn_fit_points good = {w.t, w.y, w.purity, 10, 20, 4e9}, bad = good;
    bad.forward = 0;
    CHECK(syn_fit_window(&bad, 0, INFINITY, &OPTIONS, &found) == EINVAL);
    bad.forward = 20;
    CHECK(syn_fit_window(&bad, 0, INFINITY, &OPTIONS, &found) == EINVAL);
    bad = good, bad.span_ns = 0;
    CHECK(syn_fit_window(&bad, 0, INFINITY, &OPTIONS, &found) == EINVAL);
    CHECK(syn_fit_window(&good, NAN, 1, &OPTIONS, &found) == EINVAL);
    w.purity[3] = 7;
    CHECK(syn_fit_window(&good, 0, INFINITY, &OPTIONS, &found) == EINVAL);
    w.purity[3] = 0, w.y[19] = NAN;
    CHECK(syn_fit_window(&good, 0, INFINITY, &OPTIONS, &found) == EINVAL);
}

int main(void)
{
    test_finds_the_line();
    test_few_and_degenerate_points();
    test_many_random_windows_stay_in_their_arrays();
    test_refuses_what_is_no_window();
    return 0;
}
