#include "envelope.h"
#include "mixture.h"
#include "syn_fit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { MAX_STARTS = 5, MAX_POINTS = 1 << 24 };

struct fitting {
    struct fit_cloud cloud;
    const uint8_t *purity;
    const struct syn_fit_options *options;
    struct fit_room room;
    double prior_slope;
    double prior_sigma;
};

/* The mean rise of the lowest points of one direction over the very lowest. */
static double rise_of_lowest(double *side, size_t count, size_t depth)
{
    size_t place = depth < count - 1 ? depth : count - 1;
    double least = fit_minimum(side, count);
    return fit_lowest(side, count, place + 1) - least;
}

/* 1-sigma of theta by an envelope: how far the fastest probes scatter above the floor. */
static double scatter(const struct fitting *f, struct fit_line line)
{
    double *heights = f->room.heights;
    size_t forward = f->cloud.forward, depth = (size_t)f->options->floor_probes;
    fit_heights(&f->cloud, line.slope, heights);
    double there = rise_of_lowest(heights, forward, depth);
    double back = rise_of_lowest(heights + forward, f->cloud.count - forward, depth);
    return fmax(hypot(there, back) / 2, f->options->min_sigma_ns);
}

static struct syn_fit enveloped(const struct fitting *f, struct fit_line hard)
{
    double scatter_ns = scatter(f, hard), slope_sigma = 2 * scatter_ns / f->cloud.span_ns;
    struct syn_fit found = {.slope_var = slope_sigma * slope_sigma};
    struct fit_line line = hard;
    if (f->prior_sigma < slope_sigma) {
        line = fit_line_at(&f->cloud, f->prior_slope, 1, f->room.heights);
        scatter_ns = scatter(f, line);
        found.slope_var = INFINITY;
    }
    found.slope = line.slope;
    found.forward_ns = line.forward_ns;
    found.reverse_ns = line.reverse_ns;
    found.theta_var = scatter_ns * scatter_ns;
    found.noise_ns = scatter_ns;
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

/* Distinct lines to start from. */
static int starts(struct fitting *f, struct fit_line hard, struct fit_line *distinct)
{
    const struct syn_fit_options *o = f->options;
    struct fit_line lines[MAX_STARTS] = {hard};
    size_t reverse = f->cloud.count - f->cloud.forward;
    size_t fewest = f->cloud.forward < reverse ? f->cloud.forward : reverse;
    int count = 1, kept = 0;
    if (isfinite(f->prior_sigma))
        lines[count++] =
            fit_line_at(&f->cloud, f->prior_slope, (size_t)o->depths[0], f->room.heights);
    for (int i = 0; i < 3; i++)
        if ((size_t)o->depths[i] <= fewest / 2)
            lines[count++] = fit_soft(&f->cloud, (size_t)o->depths[i], hard.slope, o->soft_range,
                                      o->soft_steps, &f->room);
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

static struct syn_fit fit(struct fitting *f)
{
    const struct syn_fit_options *o = f->options;
    struct fit_line hard =
        fit_widest(&f->cloud, 1, -o->max_drift, o->max_drift, o->hard_steps, f->room.heights);
    struct fit_line from[MAX_STARTS];
    int count = starts(f, hard, from), any = 0;
    struct fit_mixture best = {0};
    for (int i = 0; i < count; i++) {
        struct fit_mixture found;
        if (!fit_mixture(&f->cloud, f->purity, from[i], rise(f, from[i]), o, &f->room, &found))
            continue;
        if (fmin(found.pure[0], found.pure[1]) < o->min_pile)
            continue;
        if (!any || found.log_likelihood > best.log_likelihood)
            best = found;
        any = 1;
    }
    struct syn_fit envelope = enveloped(f, hard);
    if (!any)
        return envelope;
    struct syn_fit pile = piled(f, &best);
    /* See fit.py for why a sharp pile is believed. */
    if (pile.sharp || pile.theta_var <= envelope.theta_var)
        return pile;
    envelope.sharp = pile.sharp;
    envelope.apart = pile.apart;
    return envelope;
}

static int fits(const struct syn_fit_points *points, double prior_slope, double prior_sigma,
                const struct syn_fit_options *options)
{
    if (points->forward == 0 || points->count <= points->forward || points->count > MAX_POINTS ||
        !(points->span_ns > 0) || !isfinite(points->span_ns))
        return 0;
    if (options->classes < 1 || options->classes > FIT_MAX_CLASSES || options->rounds < 1 ||
        options->floor_probes < 0 || isnan(prior_slope) || isnan(prior_sigma))
        return 0;
    for (int i = 0; i < 3; i++)
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
