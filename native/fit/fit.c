#include "envelope.h"
#include "mixture.h"
#include "syn_fit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { DEPTHS = 3, MAX_ENVELOPES = 1 + DEPTHS, MAX_STARTS = 1 + MAX_ENVELOPES };
enum { MAX_POINTS = 1 << 24 };

struct envelope {
    size_t depth;
    struct fit_line line;
};

struct fitting {
    struct fit_cloud cloud;
    const uint8_t *purity;
    const struct syn_fit_options *options;
    struct fit_room room;
    double prior_slope;
    double prior_sigma;
};

/* How far the lowest points of one direction lie above the very lowest, and above that those that
 * judge them; reorders. */
struct rise {
    double above;
    double spread;
};

static struct rise rise_of_lowest(double *side, size_t count, size_t depth, size_t judges)
{
    double least = fit_minimum(side, count);
    double low = fit_lowest(side, count, depth);
    return (struct rise){low - least, fit_lowest(side, count, judges) - low};
}

/* Not hypot: its newest version would ask every host for glibc 2.35, and nothing here overflows. */
static double quadrature(double a, double b) { return sqrt(a * a + b * b); }

/* 1-sigma of theta by an envelope: how far the fastest probes scatter above the line. */
static double envelope_sigma(const struct fitting *f, struct fit_line line, size_t depth)
{
    const struct syn_fit_options *o = f->options;
    double *heights = f->room.heights;
    size_t forward = f->cloud.forward;
    size_t judges = depth == 1 ? (size_t)o->floor_probes + 1 : (size_t)o->depth_spread * depth;
    fit_heights(&f->cloud, line.slope, heights);
    struct rise there = rise_of_lowest(heights, forward, depth, judges);
    struct rise back =
        rise_of_lowest(heights + forward, f->cloud.count - forward, depth, judges);
    double scatter = quadrature(there.spread, back.spread) / 2;
    if (depth > 1)
        scatter = quadrature(scatter / (o->soft_sigmas * sqrt((double)depth)),
                             (there.above - back.above) / 2);
    return fmax(scatter, o->min_sigma_ns);
}

static struct syn_fit enveloped(const struct fitting *f, struct envelope envelope)
{
    double sigma_ns = envelope_sigma(f, envelope.line, envelope.depth);
    double slope_sigma = 2 * sigma_ns / f->cloud.span_ns;
    struct syn_fit found = {.slope_var = slope_sigma * slope_sigma};
    struct fit_line line = envelope.line;
    if (f->prior_sigma < slope_sigma) {
        line = fit_line_at(&f->cloud, f->prior_slope, envelope.depth, f->room.heights);
        sigma_ns = envelope_sigma(f, line, envelope.depth);
        found.slope_var = INFINITY;
    }
    found.slope = line.slope;
    found.forward_ns = line.forward_ns;
    found.reverse_ns = line.reverse_ns;
    found.theta_var = sigma_ns * sigma_ns;
    found.noise_ns = sigma_ns;
    return found;
}

static struct syn_fit piled(const struct fitting *f, const struct fit_mixture *mixture)
{
    const struct syn_fit_options *o = f->options;
    double least = fmax(o->min_sigma_ns, o->stamp_correlation * mixture->noise_ns);
    double tilt = least / f->cloud.span_ns;
    double fewest = fmin(mixture->pure[0], mixture->pure[1]), worse = 1 + o->thin_pile / fewest;
    return (struct syn_fit){
        .slope = mixture->line.slope,
        .forward_ns = mixture->line.forward_ns,
        .reverse_ns = mixture->line.reverse_ns,
        .theta_var = worse * mixture->theta_var + least * least,
        .slope_var = worse * mixture->slope_var + tilt * tilt,
        .covariance = worse * mixture->covariance,
        .noise_ns = mixture->noise_ns,
        .apart = mixture->apart,
        .piled = 1,
        .sharp = fewest >= o->sharp_pile && mixture->contrast >= o->sharp_contrast,
    };
}

static double apart(struct fit_line one, struct fit_line other, double span_ns)
{
    double slope = fabs(one.slope - other.slope) * span_ns;
    double forward = fabs(one.forward_ns - other.forward_ns);
    return fmax(slope, fmax(forward, fabs(one.reverse_ns - other.reverse_ns)));
}

/* The hard envelope, and those of the few lowest that the window is large for. */
static int envelopes(struct fitting *f, struct envelope *found)
{
    const struct syn_fit_options *o = f->options;
    size_t reverse = f->cloud.count - f->cloud.forward;
    size_t fewest = f->cloud.forward < reverse ? f->cloud.forward : reverse;
    struct fit_line hard =
        fit_widest(&f->cloud, 1, -o->max_drift, o->max_drift, o->hard_steps, f->room.heights);
    int count = 0;
    found[count++] = (struct envelope){1, hard};
    for (int i = 0; i < DEPTHS; i++) {
        size_t depth = (size_t)o->depths[i];
        if (depth <= fewest / 2)
            found[count++] =
                (struct envelope){depth, fit_soft(&f->cloud, depth, hard.slope, o->soft_range,
                                                  o->soft_steps, &f->room)};
    }
    return count;
}

/* Distinct lines to start from. */
static int starts(struct fitting *f, const struct envelope *found, int envelopes,
                  struct fit_line *distinct)
{
    const struct syn_fit_options *o = f->options;
    struct fit_line lines[MAX_STARTS] = {found[0].line};
    int count = 1, kept = 0;
    if (isfinite(f->prior_sigma))
        lines[count++] =
            fit_line_at(&f->cloud, f->prior_slope, (size_t)o->depths[0], f->room.heights);
    for (int i = 1; i < envelopes; i++)
        lines[count++] = found[i].line;
    for (int i = 0; i < count; i++) {
        int known = 0;
        for (int j = 0; j < kept; j++)
            known |= apart(lines[i], distinct[j], f->cloud.span_ns) <= o->same_start_ns;
        if (!known)
            distinct[kept++] = lines[i];
    }
    return kept;
}

/* How far the line's floors lie above the very lowest points: the scale of the scatter. */
static double rise(const struct fitting *f, struct fit_line line)
{
    struct fit_line least = fit_line_at(&f->cloud, line.slope, 1, f->room.heights);
    return fmax(line.forward_ns - least.forward_ns, line.reverse_ns - least.reverse_ns);
}

/* The most likely mixture; 0 where nothing piles up. */
static int likeliest(struct fitting *f, const struct envelope *found, int count,
                     struct fit_mixture *best)
{
    struct fit_line from[MAX_STARTS];
    int lines = starts(f, found, count, from), any = 0;
    for (int i = 0; i < lines; i++) {
        struct fit_mixture mixture;
        if (!fit_mixture(&f->cloud, f->purity, from[i], rise(f, from[i]), f->options, &f->room,
                         &mixture))
            continue;
        if (fmin(mixture.pure[0], mixture.pure[1]) < f->options->min_pile)
            continue;
        if (!any || mixture.log_likelihood > best->log_likelihood)
            *best = mixture;
        any = 1;
    }
    return any;
}

static struct syn_fit fit(struct fitting *f)
{
    const double share = f->options->pile_share;
    struct envelope found[MAX_ENVELOPES];
    int count = envelopes(f, found);
    struct syn_fit best = enveloped(f, found[0]);
    for (int i = 1; i < count; i++) {
        struct syn_fit other = enveloped(f, found[i]);
        if (other.theta_var < best.theta_var)
            best = other;
    }
    struct fit_mixture mixture = {0};
    if (!likeliest(f, found, count, &mixture))
        return best;
    struct syn_fit pile = piled(f, &mixture);
    if (pile.theta_var <= share * share * best.theta_var)
        return pile;
    best.sharp = pile.sharp;
    best.apart = pile.apart;
    return best;
}

static int fits(const struct syn_fit_points *points, double prior_slope, double prior_sigma,
                const struct syn_fit_options *options)
{
    if (points->forward == 0 || points->count <= points->forward || points->count > MAX_POINTS ||
        !(points->span_ns > 0) || !isfinite(points->span_ns))
        return 0;
    if (options->classes < 1 || options->classes > FIT_MAX_CLASSES || options->rounds < 1 ||
        options->floor_probes < 0 || options->depth_spread < 1 || isnan(prior_slope) ||
        isnan(prior_sigma))
        return 0;
    for (int i = 0; i < DEPTHS; i++)
        if (options->depths[i] < 1)
            return 0;
    for (size_t i = 0; i < points->count; i++)
        if (!isfinite(points->t[i]) || !isfinite(points->y[i]) ||
            points->purity[i] >= options->classes)
            return 0;
    return 1;
}

int syn_fit_window(const struct syn_fit_points *points, double prior_slope, double prior_sigma,
                   const struct syn_fit_options *options, struct syn_fit *found)
{
    if (!fits(points, prior_slope, prior_sigma, options))
        return EINVAL;
    size_t count = points->count;
    double *room = malloc(6 * count * sizeof *room);
    if (room == NULL)
        return ENOMEM;
    struct fitting fitting = {
        .cloud = {points->t, points->y, points->forward, count, points->span_ns},
        .purity = points->purity,
        .options = options,
        .room = {room, room + count, room + 2 * count, room + 3 * count, room + 4 * count,
                 room + 5 * count},
        .prior_slope = prior_slope,
        .prior_sigma = prior_sigma,
    };
    *found = fit(&fitting);
    free(room);
    return 0;
}
