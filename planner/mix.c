/* The best mixture of paths: a linear program whose columns are paths, found one by one as the best
 * path at the program's own prices (Dantzig and Wolfe). Its value bounds all plans that fit. As
 * units of a class are alike, the mixture becomes a plan by following one path for its part of the
 * units, then the next: only the seams cost extra. */
#include "search.h"

#include <string.h>

enum { ROWS_MAX = VTI_PLAN_DEVICES_MAX + 1, ROUNDS_MAX = PATHS_MAX };

/* Columns that are no paths: memory left over, memory that lacks (at a prohibitive price). */
enum { SLACK = -1, OVER = -100 };

typedef struct program {
    plan_search *s;
    unsigned rows; /* the last one says that the parts of paths add up to 1 */
    unsigned device[ROWS_MAX];
    double budget[ROWS_MAX];
    int basis[ROWS_MAX];
    double cost[ROWS_MAX], x[ROWS_MAX], inverse[ROWS_MAX][ROWS_MAX];
    double dual[ROWS_MAX]; /* prices of the whole budgets; last: of the mixture */
    double prohibitive;
} program;

static unsigned keep_path(plan_search *s)
{
    plan_path *path = &s->path[s->paths];
    path->seconds = s->path_s;
    memcpy(path->used, s->used, sizeof path->used);
    memcpy(path->state, s->path_state, s->units * sizeof *path->state);
    memcpy(path->option, s->path_option, s->units * sizeof *path->option);
    return s->paths++;
}

static void path_column(const program *p, const plan_path *path, double *column)
{
    for (unsigned i = 0; i + 1 < p->rows; i++)
        column[i] = path->used[p->device[i]] / p->budget[i];
    column[p->rows - 1] = 1;
}

static void begin(program *p)
{
    plan_search *s = p->s;
    double column[ROWS_MAX];
    for (unsigned d = 0; d < s->devices; d++)
        if (s->usable >> d & 1) {
            p->device[p->rows] = d;
            p->budget[p->rows++] = vti_larger(s->budget[d], 1);
        }
    p->rows++;
    p->prohibitive = 100 * s->path_s;
    path_column(p, &s->path[keep_path(s)], column);
    unsigned last = p->rows - 1;
    for (unsigned i = 0; i < last; i++) {
        bool over = column[i] > 1;
        double sign = over ? -1 : 1;
        p->basis[i] = over ? OVER - (int)i : SLACK - (int)i;
        p->cost[i] = over ? p->prohibitive : 0;
        p->x[i] = sign * (1 - column[i]);
        p->inverse[i][i] = sign;
        p->inverse[i][last] = -sign * column[i];
    }
    p->basis[last] = 0, p->cost[last] = s->path[0].seconds, p->x[last] = 1;
    p->inverse[last][last] = 1;
}

static void find_duals(program *p)
{
    for (unsigned j = 0; j < p->rows; j++) {
        double y = 0;
        for (unsigned i = 0; i < p->rows; i++) y += p->cost[i] * p->inverse[i][j];
        p->dual[j] = j + 1 < p->rows ? -y : y;
    }
}

/* The column enters the basis. False if rounding leaves nothing to pivot on. */
static bool enter(program *p, int name, double cost, const double *column)
{
    double w[ROWS_MAX], least = 0;
    int out = -1;
    for (unsigned i = 0; i < p->rows; i++) {
        w[i] = 0;
        for (unsigned j = 0; j < p->rows; j++) w[i] += p->inverse[i][j] * column[j];
        if (w[i] <= 1e-9) continue;
        double ratio = p->x[i] / w[i];
        if (out < 0 || ratio < least) out = (int)i, least = ratio;
    }
    if (out < 0) return false;
    for (unsigned j = 0; j < p->rows; j++) p->inverse[out][j] /= w[out];
    p->x[out] = least;
    p->basis[out] = name, p->cost[out] = cost;
    for (unsigned i = 0; i < p->rows; i++) {
        if (i == (unsigned)out) continue;
        p->x[i] = vti_larger(p->x[i] - w[i] * least, 0);
        for (unsigned j = 0; j < p->rows; j++) p->inverse[i][j] -= w[i] * p->inverse[out][j];
    }
    return true;
}

/* Keeps prices between nothing and prohibitive. */
static bool enter_memory(program *p)
{
    double tolerance = 1e-9 * p->prohibitive;
    for (unsigned i = 0; i + 1 < p->rows; i++) {
        double column[ROWS_MAX] = {0};
        if (p->dual[i] < -tolerance) {
            column[i] = 1;
            return enter(p, SLACK - (int)i, 0, column);
        }
        if (p->dual[i] > p->prohibitive + tolerance) {
            column[i] = -1;
            return enter(p, OVER - (int)i, p->prohibitive, column);
        }
    }
    return false;
}

static double value(const program *p)
{
    double sum = 0;
    for (unsigned i = 0; i < p->rows; i++) sum += p->cost[i] * p->x[i];
    return sum;
}

/* The best path at prices between those of the best bound and the program's. */
static void price(program *p, double caution)
{
    plan_search *s = p->s;
    double prepaid = 0;
    memset(s->price, 0, sizeof s->price);
    for (unsigned i = 0; i + 1 < p->rows; i++) {
        unsigned d = p->device[i];
        double dual = vti_larger(p->dual[i], 0) / p->budget[i];
        s->price[d] = caution * s->bound_price[d] + (1 - caution) * dual;
        prepaid += s->price[d] * s->budget[d];
    }
    double bound = vti_plan_path(s) - prepaid;
    if (bound > s->bound_s) {
        s->bound_s = bound;
        memcpy(s->bound_price, s->price, sizeof s->price);
    }
    if (s->path_s < s->best_s && vti_plan_path_fits(s)) {
        vti_plan_path_places(s, s->draft);
        vti_plan_offer(s, s->draft, s->path_s);
    }
}

/* Adds the current path if the program is better with it. */
static bool enter_path(program *p)
{
    plan_search *s = p->s;
    double column[ROWS_MAX], reduced;
    plan_path *path = &s->path[keep_path(s)];
    path_column(p, path, column);
    reduced = path->seconds - p->dual[p->rows - 1];
    for (unsigned i = 0; i + 1 < p->rows; i++) reduced += p->dual[i] * column[i];
    if (reduced < -1e-7 * path->seconds && enter(p, (int)s->paths - 1, path->seconds, column))
        return true;
    s->paths--;
    return false;
}

static unsigned parts(const program *p, plan_mixture *mixture)
{
    mixture->parts = 0;
    for (unsigned i = 0; i < p->rows; i++) {
        if (p->basis[i] < 0 || p->x[i] < 1e-6) continue;
        mixture->path[mixture->parts] = (unsigned)p->basis[i];
        mixture->part[mixture->parts++] = p->x[i];
    }
    return mixture->parts;
}

static bool lacks_memory(const program *p)
{
    for (unsigned i = 0; i < p->rows; i++)
        if (p->basis[i] <= OVER && p->x[i] > 1e-6) return true;
    return false;
}

/* A probe is content with less than the best mixture, if there is room for what seams cost. */
static bool is_good(const program *p, bool hasty)
{
    enum { PERCENT_FOR_SEAMS = 3 };
    double z = value(p), bound = p->s->bound_s, enough = p->s->enough_s;
    if (lacks_memory(p)) return false;
    return z - bound <= 5e-4 * z || (hasty && z <= enough * (100 - PERCENT_FOR_SEAMS) / 100);
}

bool vti_plan_mix(plan_search *s, bool hasty, plan_mixture *mixture)
{
    enum { PIVOTS = 16 };
    program p = {.s = s};
    double caution = s->warm ? 1 : 0;
    s->paths = 0;
    if (!s->warm) memset(s->bound_price, 0, sizeof s->bound_price);
    s->warm = true;
    begin(&p);
    for (unsigned round = 1; round < ROUNDS_MAX; round++) {
        find_duals(&p);
        for (unsigned i = 0; i < PIVOTS && enter_memory(&p); i++) find_duals(&p);
        price(&p, caution);
        if (vti_plan_is_vain(s) || vti_plan_is_enough(s)) return false;
        bool entered = enter_path(&p);
        if (!entered && caution <= 0) break;
        caution = entered ? 0.5 : 0;
        if (is_good(&p, hasty)) break;
    }
    return !lacks_memory(&p) && parts(&p, mixture) > 0;
}
