#include "mixture.h"

#include <math.h>
#include <string.h>

#define ROOT_TAU 2.5066282746310002

struct state {
    struct fit_line line;
    double noise_ns;
    double tail_ns[2];                /* of delayed probes, forward and reverse */
    double share[2][FIT_MAX_CLASSES]; /* of pure ones, per direction and class */
};

struct moments {
    double weight[2];
    double t[2];
    double y[2];
    double spread;
    double slope;
};

struct window {
    const struct fit_cloud *cloud;
    const uint8_t *purity;
    const struct syn_fit_options *options;
    struct fit_room *room;
};

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* Delays above the line's floors. */
static void above_floors(const struct window *w, struct fit_line line)
{
    double *heights = w->room->heights;
    fit_heights(w->cloud, line.slope, heights);
    for (size_t i = 0; i < w->cloud->count; i++)
        heights[i] -= i < w->cloud->forward ? line.forward_ns : line.reverse_ns;
}

/* Probability of each probe to be pure and to be delayed; returns the log-likelihood. */
static double expect(const struct window *w, const struct state *state)
{
    const double wrong = w->options->early_share / w->options->early_ns;
    const double scale = 1 / (ROOT_TAU * state->noise_ns);
    /* One logarithm for eight densities, none of which is below 1e-12 or far above 1. */
    double likelihood = 0, product = 1;
    for (size_t i = 0; i < w->cloud->count; i++) {
        int part = i >= w->cloud->forward;
        double height = w->room->heights[i], share = state->share[part][w->purity[i]];
        double tail = 1 / state->tail_ns[part];
        double scaled = height / state->noise_ns;
        double squared = scaled * scaled;
        double pure = squared >= 200.0 ? 0.0 : share * exp(-0.5 * squared) * scale;
        double delayed = 0;
        if (height > 0)
            delayed = (1 - share) * exp(-fmin(height * tail, 60.0)) * tail;
        double early = height < 0 && height > -w->options->early_ns ? wrong : wrong * 1e-6;
        double total = pure + delayed + early;
        w->room->pure[i] = pure / total;
        w->room->delayed[i] = delayed / total;
        product *= total;
        if (i % 8 == 7) {
            likelihood += log(product);
            product = 1;
        }
    }
    return likelihood + log(product);
}

static int moments_of(const struct window *w, struct moments *m)
{
    const struct fit_cloud *cloud = w->cloud;
    const double *pure = w->room->pure;
    size_t ends[3] = {0, cloud->forward, cloud->count};
    double cross = 0;
    memset(m, 0, sizeof *m);
    for (int part = 0; part < 2; part++) {
        double weight = 0, t = 0, y = 0;
        for (size_t i = ends[part]; i < ends[part + 1]; i++) {
            weight += pure[i];
            t += pure[i] * cloud->t[i];
            y += pure[i] * cloud->y[i];
        }
        if (weight < w->options->min_pure)
            return 0;
        m->weight[part] = weight, m->t[part] = t / weight, m->y[part] = y / weight;
        for (size_t i = ends[part]; i < ends[part + 1]; i++) {
            double since = cloud->t[i] - m->t[part];
            m->spread += pure[i] * since * since;
            cross += pure[i] * since * (cloud->y[i] - m->y[part]);
        }
    }
    if (!(m->spread > 0))
        return 0;
    m->slope = cross / m->spread;
    return 1;
}

/* Pure share per class of one direction, drawn towards its overall share where a class is thin. */
static void shares(const struct window *w, size_t from, size_t to, double *share)
{
    double found[FIT_MAX_CLASSES] = {0}, count[FIT_MAX_CLASSES] = {0}, all = 0;
    for (size_t i = from; i < to; i++) {
        found[w->purity[i]] += w->room->pure[i];
        count[w->purity[i]] += 1;
        all += w->room->pure[i];
    }
    double overall = clamp(all / (double)(to - from), 2e-4, 0.999);
    for (int class = 0; class < w->options->classes; class++)
        share[class] = clamp((found[class] + 2 * overall) / (count[class] + 2), 1e-5, 0.999);
}

/* The state that the probabilities make most likely; heights follow it. */
static void maximise(const struct window *w, const struct moments *m, struct state *state)
{
    state->line.slope = m->slope;
    state->line.forward_ns = m->y[0] - m->slope * m->t[0];
    state->line.reverse_ns = -(m->y[1] - m->slope * m->t[1]);
    above_floors(w, state->line);
    const size_t ends[3] = {0, w->cloud->forward, w->cloud->count};
    double squares = 0, pure = 0, mean_ns[2];
    for (int part = 0; part < 2; part++) {
        double waited = 0, delayed = 0;
        for (size_t i = ends[part]; i < ends[part + 1]; i++) {
            double height = w->room->heights[i];
            squares += w->room->pure[i] * height * height;
            pure += w->room->pure[i];
            waited += w->room->delayed[i] * fmax(height, 0);
            delayed += w->room->delayed[i];
        }
        mean_ns[part] = waited / fmax(delayed, 1e-9);
        shares(w, ends[part], ends[part + 1], state->share[part]);
    }
    state->noise_ns =
        clamp(sqrt(squares / pure), w->options->min_noise_ns, w->options->max_noise_ns);
    for (int part = 0; part < 2; part++)
        state->tail_ns[part] = fmax(mean_ns[part], 4 * state->noise_ns);
}

static double moved(const struct state *before, const struct state *now, double span_ns)
{
    double slope = fabs(now->line.slope - before->line.slope) * span_ns;
    double forward = fabs(now->line.forward_ns - before->line.forward_ns);
    double reverse = fabs(now->line.reverse_ns - before->line.reverse_ns);
    return fmax(slope, fmax(forward, reverse));
}

static void settle(const struct window *w, const struct state *state, const struct moments *m,
                   double likelihood, struct fit_mixture *found)
{
    size_t counts[2] = {w->cloud->forward, w->cloud->count - w->cloud->forward};
    double noise_var = state->noise_ns * state->noise_ns, lever = (m->t[0] + m->t[1]) / 2;
    found->contrast = INFINITY;
    for (int part = 0; part < 2; part++) {
        double late = fmax((double)counts[part] - m->weight[part], 1.0);
        double among = late * 2 * state->noise_ns / state->tail_ns[part];
        found->contrast = fmin(found->contrast, m->weight[part] / among);
        found->pure[part] = m->weight[part];
    }
    found->line = state->line;
    found->noise_ns = state->noise_ns;
    found->apart = fabs(m->t[0] - m->t[1]) / w->cloud->span_ns;
    found->log_likelihood = likelihood;
    found->slope_var = noise_var / m->spread;
    found->theta_var = noise_var * (1 / m->weight[0] + 1 / m->weight[1]) / 4 +
                       lever * lever * found->slope_var;
    found->covariance = -lever * found->slope_var;
}

/* Median of one direction's delays above the starting floor, 0 if there are none. */
static double median_late(const struct window *w, size_t from, size_t to)
{
    double *late = w->room->scratch;
    size_t count = 0;
    for (size_t i = from; i < to; i++)
        if (w->room->heights[i] > 0)
            late[count++] = w->room->heights[i];
    if (count == 0)
        return 0;
    fit_select(late, count, count / 2);
    double upper = late[count / 2];
    if (count % 2)
        return upper;
    double lower = late[0];
    for (size_t i = 1; i < count / 2; i++)
        lower = fmax(lower, late[i]);
    return (lower + upper) / 2;
}

int fit_mixture(const struct fit_cloud *cloud, const uint8_t *purity, struct fit_line start,
                double noise_ns, const struct syn_fit_options *options, struct fit_room *room,
                struct fit_mixture *found)
{
    const struct window w = {cloud, purity, options, room};
    struct state state = {.line = start};
    struct moments m = {{0}, {0}, {0}, 0, 0};
    double likelihood = -INFINITY;
    above_floors(&w, start);
    state.noise_ns = fmin(fmax(noise_ns, options->start_noise_ns), options->max_noise_ns);
    const size_t ends[3] = {0, cloud->forward, cloud->count};
    for (int part = 0; part < 2; part++) {
        double median = median_late(&w, ends[part], ends[part + 1]);
        state.tail_ns[part] = fmax(median, 5 * state.noise_ns);
        for (int class = 0; class < options->classes; class++)
            state.share[part][class] = options->prior_pure;
    }
    for (int round = 0; round < options->rounds; round++) {
        likelihood = expect(&w, &state);
        if (!moments_of(&w, &m))
            return 0;
        struct state before = state;
        maximise(&w, &m, &state);
        if (moved(&before, &state, cloud->span_ns) < options->settled * state.noise_ns)
            break;
    }
    settle(&w, &state, &m, likelihood, found);
    return 1;
}
