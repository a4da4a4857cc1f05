/* Bipartite edge colouring with alternating (Kempe) chains, after Koenig (1916): a graph in which
 * no node has more than S edges has a colouring with S colours. See syntony/traffic/colouring.py. */
#include "syn_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1, MAX_COLOURS = 4096, PAIRS = 16 };

/* One side of the graph: 0 senders' leaves, 1 receivers'. */
struct side {
    int32_t nodes, room;
    int32_t *leaf_first;  /* newest node of a leaf, or NONE */
    int32_t *next;        /* older node of the same leaf */
    int32_t *degree;      /* edges of a node */
    int32_t *at;          /* flow at (node, colour), or NONE */
    int32_t *peer;        /* its node on the other side, or NONE: all that a walk has to read */
    uint64_t *free;       /* bits of a node: colours with no edge */
};

struct syn_colouring {
    int32_t leaves, colours, flows, words;
    struct side side[2];
    int32_t *node[2]; /* of each flow; NONE: not there */
    int32_t *colour;  /* of each flow */
};

static int grow(struct syn_colouring *c, struct side *s)
{
    int32_t room = s->room ? 2 * s->room : c->leaves + 1;
    int32_t *next = realloc(s->next, (size_t)room * sizeof *next);
    if (next)
        s->next = next;
    int32_t *degree = realloc(s->degree, (size_t)room * sizeof *degree);
    if (degree)
        s->degree = degree;
    int32_t *at = realloc(s->at, (size_t)room * (size_t)c->colours * sizeof *at);
    if (at)
        s->at = at;
    int32_t *peer = realloc(s->peer, (size_t)room * (size_t)c->colours * sizeof *peer);
    if (peer)
        s->peer = peer;
    uint64_t *bits = realloc(s->free, (size_t)room * (size_t)c->words * sizeof *bits);
    if (bits)
        s->free = bits;
    if (!next || !degree || !at || !peer || !bits)
        return ENOMEM;
    s->room = room;
    return 0;
}

static int start_side(struct syn_colouring *c, struct side *s)
{
    size_t bytes = (size_t)c->leaves * sizeof *s->leaf_first;
    s->leaf_first = malloc(bytes);
    if (!s->leaf_first)
        return ENOMEM;
    memset(s->leaf_first, 0xff, bytes);
    return grow(c, s);
}

struct syn_colouring *syn_colouring_new(int32_t leaves, int32_t colours, int32_t flows)
{
    if (leaves < 1 || colours < 1 || colours > MAX_COLOURS || flows < 1 ||
        leaves > INT32_MAX / 8 / colours)
        return NULL;
    struct syn_colouring *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->leaves = leaves, c->colours = colours, c->flows = flows, c->words = (colours + 63) / 64;
    c->colour = malloc((size_t)flows * sizeof *c->colour);
    int failed = !c->colour;
    for (int side = 0; side < 2; side++) {
        c->node[side] = malloc((size_t)flows * sizeof **c->node);
        failed |= !c->node[side] || start_side(c, &c->side[side]);
    }
    if (failed) {
        syn_colouring_free(c);
        return NULL;
    }
    memset(c->colour, 0xff, (size_t)flows * sizeof *c->colour);
    memset(c->node[0], 0xff, (size_t)flows * sizeof **c->node);
    memset(c->node[1], 0xff, (size_t)flows * sizeof **c->node);
    return c;
}

void syn_colouring_free(struct syn_colouring *c)
{
    if (!c)
        return;
    for (int side = 0; side < 2; side++) {
        struct side *s = &c->side[side];
        free(s->leaf_first), free(s->next), free(s->degree), free(s->at), free(s->peer);
        free(s->free), free(c->node[side]);
    }
    free(c->colour), free(c);
}

/* A node of the leaf that has an edge to spare, or NONE: no memory. */
static int32_t open_node(struct syn_colouring *c, struct side *s, int32_t leaf)
{
    for (int32_t node = s->leaf_first[leaf]; node != NONE; node = s->next[node])
        if (s->degree[node] < c->colours)
            return node;
    if (s->nodes == s->room && grow(c, s))
        return NONE;
    int32_t node = s->nodes++;
    s->next[node] = s->leaf_first[leaf];
    s->leaf_first[leaf] = node;
    s->degree[node] = 0;
    size_t first = (size_t)node * (size_t)c->colours, bytes = (size_t)c->colours * sizeof *s->at;
    memset(&s->at[first], 0xff, bytes);
    memset(&s->peer[first], 0xff, bytes);
    uint64_t *bits = &s->free[(size_t)node * (size_t)c->words];
    memset(bits, 0, (size_t)c->words * sizeof *bits);
    for (int32_t colour = 0; colour < c->colours; colour++)
        bits[colour / 64] |= 1ull << (colour % 64);
    return node;
}

static int32_t *slot(const struct syn_colouring *c, int side, int32_t node, int32_t colour)
{
    return &c->side[side].at[(size_t)node * (size_t)c->colours + (size_t)colour];
}

static int32_t *peer_at(const struct syn_colouring *c, int side, int32_t node, int32_t colour)
{
    return &c->side[side].peer[(size_t)node * (size_t)c->colours + (size_t)colour];
}

static uint64_t *bits_of(const struct syn_colouring *c, int side, int32_t node)
{
    return &c->side[side].free[(size_t)node * (size_t)c->words];
}

static int is_free(const struct syn_colouring *c, int side, int32_t node, int32_t colour)
{
    return (int)(bits_of(c, side, node)[colour / 64] >> (colour % 64) & 1);
}

static void paint(struct syn_colouring *c, int32_t flow, int32_t colour)
{
    c->colour[flow] = colour;
    for (int side = 0; side < 2; side++) {
        int32_t node = c->node[side][flow];
        *slot(c, side, node, colour) = flow;
        *peer_at(c, side, node, colour) = c->node[1 - side][flow];
        bits_of(c, side, node)[colour / 64] &= ~(1ull << (colour % 64));
    }
}

static void strip(struct syn_colouring *c, int32_t flow)
{
    int32_t colour = c->colour[flow];
    for (int side = 0; side < 2; side++) {
        int32_t node = c->node[side][flow];
        *slot(c, side, node, colour) = NONE;
        *peer_at(c, side, node, colour) = NONE;
        bits_of(c, side, node)[colour / 64] |= 1ull << (colour % 64);
    }
    c->colour[flow] = NONE;
}

static int32_t common(const struct syn_colouring *c, int32_t a, int32_t b)
{
    const uint64_t *up = bits_of(c, 0, a), *down = bits_of(c, 1, b);
    for (int32_t word = 0; word < c->words; word++)
        if (up[word] & down[word])
            return 64 * word + __builtin_ctzll(up[word] & down[word]);
    return NONE;
}

/* The next free colour of a node from `from` on, or NONE. */
static int32_t next_free(const struct syn_colouring *c, int side, int32_t node, int32_t from)
{
    for (int32_t colour = from; colour < c->colours; colour++)
        if (is_free(c, side, node, colour))
            return colour;
    return NONE;
}

/* Follows the flows that alternate from a node on between a colour that it has and one that it
 * lacks. Returns their number, or NONE where they are more than `longest`. */
static int32_t walk(const struct syn_colouring *c, int side, int32_t node, int32_t has,
                    int32_t lacks, int32_t longest)
{
    int32_t colour = has, length = 0;
    for (;;) {
        int32_t peer = *peer_at(c, side, node, colour);
        if (peer == NONE)
            return length;
        if (length == longest)
            return NONE;
        length++;
        side = 1 - side;
        node = peer;
        colour = colour == has ? lacks : has;
    }
}

static void exchange(int32_t *a, int32_t *b)
{
    int32_t kept = *a;
    *a = *b;
    *b = kept;
}

/* At an end of a chain one of the two colours becomes free and the other is taken. */
static void turn(struct syn_colouring *c, int side, int32_t node, int32_t x, int32_t y)
{
    bits_of(c, side, node)[x / 64] ^= 1ull << (x % 64);
    bits_of(c, side, node)[y / 64] ^= 1ull << (y % 64);
}

/* Exchanges x and y along the chain of `length` flows that `walk` found from a node, whose first
 * has colour x. */
static void swap(struct syn_colouring *c, int side, int32_t node, int32_t length, int32_t x,
                 int32_t y)
{
    int32_t colour = x;
    turn(c, side, node, x, y);
    for (int32_t i = 0; i <= length; i++) {
        int32_t flow = *slot(c, side, node, colour), peer = *peer_at(c, side, node, colour);
        exchange(slot(c, side, node, x), slot(c, side, node, y));
        exchange(peer_at(c, side, node, x), peer_at(c, side, node, y));
        if (i == length)
            break;
        colour = colour == x ? y : x;
        c->colour[flow] = colour;
        side = 1 - side;
        node = peer;
    }
    turn(c, side, node, x, y);
}

/* Colours a flow by a chain of at most `longest` others. Returns how many, or NONE. */
static int32_t by_chain(struct syn_colouring *c, int32_t flow, int32_t longest)
{
    int32_t a = c->node[0][flow], b = c->node[1][flow], tries = 0;
    for (int32_t x = next_free(c, 0, a, 0); x != NONE; x = next_free(c, 0, a, x + 1))
        for (int32_t y = next_free(c, 1, b, 0); y != NONE; y = next_free(c, 1, b, y + 1)) {
            if (tries++ == PAIRS)
                return NONE;
            /* x becomes free at b, or y at a. */
            int32_t length = walk(c, 1, b, x, y, longest);
            if (length != NONE) {
                swap(c, 1, b, length, x, y);
                paint(c, flow, x);
                return length;
            }
            length = walk(c, 0, a, y, x, longest);
            if (length != NONE) {
                swap(c, 0, a, length, y, x);
                paint(c, flow, y);
                return length;
            }
        }
    return NONE;
}

/* Colours one flow. Returns how many others were moved. */
static int64_t colour_one(struct syn_colouring *c, int32_t flow, int32_t reach)
{
    static const int32_t longest[] = {8, 32, 128, 512, INT32_MAX};
    int32_t colour = common(c, c->node[0][flow], c->node[1][flow]);
    if (colour != NONE) {
        paint(c, flow, colour);
        return 0;
    }
    for (size_t i = 0; i < sizeof longest / sizeof *longest; i++) {
        int32_t moved = by_chain(c, flow, longest[i] < reach ? longest[i] : reach);
        if (moved != NONE)
            return moved;
        if (longest[i] >= reach)
            break;
    }
    return 0;
}

int64_t syn_colouring_add(struct syn_colouring *c, const int32_t *flow, const int32_t *from,
                          const int32_t *to, size_t count, int32_t reach)
{
    int64_t moved = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t f = flow[i];
        if (f < 0 || f >= c->flows || c->node[0][f] != NONE || from[i] < 0 ||
            from[i] >= c->leaves || to[i] < 0 || to[i] >= c->leaves)
            return -EINVAL;
        int32_t a = open_node(c, &c->side[0], from[i]), b = open_node(c, &c->side[1], to[i]);
        if (a == NONE || b == NONE)
            return -ENOMEM;
        c->node[0][f] = a, c->node[1][f] = b;
        c->side[0].degree[a]++, c->side[1].degree[b]++;
        moved += colour_one(c, f, reach);
    }
    return moved;
}

int syn_colouring_remove(struct syn_colouring *c, const int32_t *flow, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int32_t f = flow[i];
        if (f < 0 || f >= c->flows || c->node[0][f] == NONE)
            return EINVAL;
        if (c->colour[f] != NONE)
            strip(c, f);
        for (int side = 0; side < 2; side++) {
            c->side[side].degree[c->node[side][f]]--;
            c->node[side][f] = NONE;
        }
    }
    return 0;
}

const int32_t *syn_colouring_colours(const struct syn_colouring *c)
{
    return c->colour;
}
