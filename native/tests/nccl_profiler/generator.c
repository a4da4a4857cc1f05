/* profiler_generator PLUGIN VERSION SEED EVENTS PAGE
 *
 * Random work of NCCL (seed 0: another one each time, printed to stderr): communicators, operations, proxies that post, transmit and finish steps as
 * NCCL's do, and now and then what NCCL should not do. Prints what it did, a line for each callback
 * that began or changed something, and writes the page to the file PAGE at the end:
 *
 *     AT o ID COMM KIND OP COUNT     AT p ID OPERATION s|r     AT s ID PART     AT w STEP STATE
 *     AT c PART (credit, version 2)  AT e o|p|s ID (it ends)
 *
 * It knows nothing of what is made of it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "drive.h"

enum { COMMS = 3, OPEN = 24, PARTS_EACH = 6, DEEP = 8 };

struct step { void *handle; int id; bool open; };
struct part {
    void *handle;
    int id, posted, sent, done, steps;
    bool sends, over, stuck;
    struct step ring[DEEP];
};
struct operation {
    void *handle;
    int id, count;
    bool open, enqueued;
    struct part parts[PARTS_EACH];
};

static struct plugin plugin;
static void *comms[COMMS];
static struct operation operations[OPEN];
static int ids;
static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 20) % below;
}

#define LOG(...) (printf("%" PRId64 " ", virtual_ns), printf(__VA_ARGS__), printf("\n"))

static void begin_operation(struct operation *operation)
{
    static const char *const OPS[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast"};
    int comm = (int)draw(COMMS), count = 1 + (int)draw(1 << 20);
    *operation = (struct operation){.open = true, .id = ids++, .count = 1 + (int)draw(PARTS_EACH)};
    if (draw(6) == 0) {
        operation->handle = start_p2p(&plugin, comms[comm], NULL, "Send", (size_t)count, 5);
        LOG("o %d %d p Send %d", operation->id, comm, count);
    } else {
        const char *op = OPS[draw(4)];
        operation->handle = start_coll(&plugin, comms[comm], NULL, 7, op, (size_t)count);
        LOG("o %d %d c %s %d", operation->id, comm, op, count);
    }
    if (draw(9) == 0)
        operation->count = 0;
}

static void begin_part(struct operation *operation, struct part *part)
{
    part->sends = draw(2);
    part->steps = (int)draw(30);
    part->stuck = draw(60) == 0;
    part->id = ids++;
    part->handle = start_proxy_op(&plugin, comms[0], operation->handle, getpid(), 0, part->sends);
    LOG("p %d %d %c", part->id, operation->id, part->sends ? 's' : 'r');
}

static void wait_for(const struct step *step, int which)
{
    state(&plugin, step->handle, which);
    LOG("w %d %d", step->id, which);
}

static void end_step(struct step *step)
{
    stop(&plugin, step->handle);
    LOG("e s %d", step->id);
    step->open = false;
    if (draw(50) == 0)
        stop(&plugin, step->handle); /* again: names nothing */
}

static void end_part(struct part *part)
{
    stop(&plugin, part->handle);
    LOG("e p %d", part->id);
    part->over = true;
}

/* What a proxy does next with a part, if it can. */
static void progress(struct part *part)
{
    struct step *next = &part->ring[part->posted % DEEP];
    switch (draw(4)) {
    case 0:
        if (part->posted < part->steps && part->posted - part->done < DEEP && !next->open) {
            *next = (struct step){start_step(&plugin, comms[0], part->handle, part->posted),
                                  ids++, true};
            LOG("s %d %d", next->id, part->id);
            part->posted++;
            virtual_ns += draw(50);
            wait_for(next, part->sends ? 8 : 10);
        }
        break;
    case 1:
        if (part->sent < part->posted) {
            struct step *step = &part->ring[part->sent % DEEP];
            if (part->sends && draw(2)) {
                if (plugin.version == 2) {
                    state(&plugin, part->handle, 1);
                    LOG("c %d", part->id);
                } else
                    wait_for(step, 20);
            } else {
                wait_for(step, part->sends ? 9 : draw(2) ? 11 : 12);
                part->sent++;
            }
        }
        break;
    case 2:
        if (part->done < part->sent && part->ring[part->done % DEEP].open)
            end_step(&part->ring[part->done++ % DEEP]);
        else if (part->done + 1 < part->sent && draw(8) == 0 &&
                 part->ring[(part->done + 1) % DEEP].open)
            end_step(&part->ring[(part->done + 1) % DEEP]); /* not in order */
        else if (part->done < part->sent && !part->ring[part->done % DEEP].open)
            part->done++;
        break;
    default:
        if (part->done == part->steps || (part->stuck && draw(20) == 0))
            end_part(part);
    }
}

/* What NCCL should not do, and events that are not followed. */
static void disturb(const struct operation *operation)
{
    switch (draw(5)) {
    case 0: start_type(&plugin, comms[0], operation->handle, 1 << (draw(2) ? 0 : 5)); break;
    case 1: start_proxy_op(&plugin, comms[0], operation->handle, getpid() + 1, 0, true); break;
    case 2: stop(&plugin, NULL); break;
    case 3: state(&plugin, operation->handle, (int)draw(40)); break;
    default: start_step(&plugin, comms[0], operation->handle, 0);
    }
}

static void act(struct operation *operation)
{
    if (!operation->open) {
        begin_operation(operation);
        return;
    }
    if (draw(30) == 0)
        disturb(operation);
    if (!operation->enqueued && draw(3) == 0) {
        stop(&plugin, operation->handle);
        LOG("e o %d", operation->id);
        operation->enqueued = true;
    }
    bool over = operation->enqueued;
    for (int i = 0; i < operation->count; i++)
        over = over && operation->parts[i].over;
    if (over || draw(500) == 0) { /* or it never ends */
        operation->open = false;
        return;
    }
    if (operation->count == 0)
        return;
    struct part *part = &operation->parts[draw((unsigned)operation->count)];
    if (part->id == 0)
        begin_part(operation, part);
    else if (!part->over)
        progress(part);
}

int main(int argc, char **words)
{
    CHECK(argc == 6);
    uint64_t seed = strtoull(words[3], NULL, 10);
    if (seed == 0)
        CHECK(getrandom(&seed, 4, 0) == 4);
    fprintf(stderr, "seed %" PRIu64 "\n", seed);
    random_state = seed * 2 + 1;
    virtual_ns = 1000000;
    ids = 1;
    int listener = agent_listen(), mask = 0;
    plugin = plugin_load(words[1], atoi(words[2]));
    for (int i = 0; i < COMMS; i++)
        comms[i] = plugin_init(&plugin, 100 + (uint64_t)i, &mask);
    int memory = agent_take(listener);
    for (long left = atol(words[4]); left > 0; left--) {
        virtual_ns += draw(4) ? draw(300) : draw(20000);
        act(&operations[draw(OPEN)]);
    }
    FILE *to = fopen(words[5], "wb");
    CHECK(to != NULL);
    CHECK_EQUAL(fwrite(map_page(memory), sizeof(struct syn_nccl_page), 1, to), 1);
    CHECK(fclose(to) == 0);
    LOG("end");
}
