#include "memory_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "memory_parse.h"

/* Short of memory: this share of ten seconds was spent waiting for it, or less than a twentieth of
 * it is available. Plentiful again: half the pressure, twice the memory. */
enum { SOME_PERCENT = 20, FULL_PERCENT = 5, AVAILABLE_PART = 20 };

enum { TEXT_BYTES = 1 << 16, PATH_BYTES = VTI_CGROUP_PATH_MAX + 512 };

struct vti_memory_watch {
    pthread_mutex_t lock;
    char *root, *text; /* text: of the file that is being read */
    uint64_t interval_ns, sampled_ns;
    bool has_sample, warned;
    vti_memory_sample sample;
    bool has_group;
    vti_cgroup group;
    int trigger; /* of stalls: readable when there was one; -1: none */
};

/* --- reading --------------------------------------------------------------------------------- */

/* The whole file, or its beginning; NULL: it cannot be read. */
static const char *read_text(vti_memory_watch *w, const char *folder, const char *name)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s%s/%s", w->root, folder, name);
    if (length < 0 || (size_t)length >= sizeof path) return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    size_t bytes = 0;
    ssize_t got = 1;
    while (got > 0 && bytes < TEXT_BYTES - 1) {
        got = read(fd, w->text + bytes, TEXT_BYTES - 1 - bytes);
        if (got > 0) bytes += (size_t)got;
    }
    close(fd);
    w->text[bytes] = 0;
    return got < 0 ? NULL : w->text;
}

static void find_group(vti_memory_watch *w)
{
    const char *cgroup = read_text(w, "/proc/self", "cgroup");
    char *copy = cgroup ? strdup(cgroup) : NULL;
    const char *mountinfo = copy ? read_text(w, "/proc/self", "mountinfo") : NULL;
    w->has_group = mountinfo && vti_parse_cgroup(copy, mountinfo, &w->group);
    free(copy);
}

static bool group_bytes(vti_memory_watch *w, const char *folder, const char *name, uint64_t *out)
{
    const char *text = read_text(w, folder, name);
    return text && vti_parse_cgroup_bytes(text, out);
}

/* What the group in `folder` leaves. False: it has no limit. */
static bool group_leaves(vti_memory_watch *w, const char *folder, uint64_t *limit, uint64_t *left)
{
    bool v2 = w->group.version == 2;
    uint64_t most = UINT64_MAX, high = UINT64_MAX, used, files = 0;
    group_bytes(w, folder, v2 ? "memory.max" : "memory.limit_in_bytes", &most);
    /* Above memory.high, the kernel slows a group down until it hardly moves. */
    if (v2) group_bytes(w, folder, "memory.high", &high);
    if (high < most) most = high;
    if (most == UINT64_MAX ||
        !group_bytes(w, folder, v2 ? "memory.current" : "memory.usage_in_bytes", &used))
        return false;
    const char *stat = read_text(w, folder, "memory.stat");
    if (stat && vti_parse_cgroup_file_bytes(stat, &files)) used -= files < used ? files : used;
    *limit = most;
    *left = used < most ? most - used : 0;
    return true;
}

/* From the own group upwards. */
static void look_at_groups(vti_memory_watch *w, vti_memory_sample *s)
{
    char folder[VTI_CGROUP_PATH_MAX];
    if (!w->has_group) return;
    snprintf(folder, sizeof folder, "%s", w->group.folder);
    for (size_t bytes = strlen(folder);;) {
        uint64_t limit, left;
        if (group_leaves(w, folder, &limit, &left)) {
            s->in_group |= !s->total_bytes || left < s->available_bytes;
            if (!s->total_bytes || left < s->available_bytes) s->available_bytes = left;
            if (!s->total_bytes || limit < s->total_bytes) s->total_bytes = limit;
        }
        if (bytes <= w->group.top_bytes) break;
        while (bytes > w->group.top_bytes && folder[bytes - 1] != '/') bytes--;
        if (bytes > w->group.top_bytes) bytes--;
        folder[bytes] = 0;
    }
}

static void look_at_pressure(vti_memory_watch *w, const char *folder, const char *name,
                             vti_memory_sample *s)
{
    vti_pressure p;
    const char *text = read_text(w, folder, name);
    if (!text || !vti_parse_pressure(text, &p)) return;
    if (p.some > s->some_pressure) s->some_pressure = p.some;
    if (p.full > s->full_pressure) s->full_pressure = p.full;
}

/* --- the kernel's own report ----------------------------------------------------------------- */

static int open_trigger(const char *folder, const char *name)
{
    /* 200 ms of waiting in 2 s; windows of whole 2 s are allowed to everybody. */
    static const char request[] = "some 200000 2000000";
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -1;
    if (write(fd, request, sizeof request) == (ssize_t)sizeof request) return fd;
    close(fd);
    return -1;
}

static int find_trigger(const vti_memory_watch *w)
{
    int fd = w->has_group && w->group.version == 2
                 ? open_trigger(w->group.folder, "memory.pressure")
                 : -1;
    return fd >= 0 ? fd : open_trigger("/proc/pressure", "memory");
}

static bool was_stalled(const vti_memory_watch *w)
{
    struct pollfd p = {.fd = w->trigger, .events = POLLPRI};
    return w->trigger >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLPRI);
}

/* --- samples --------------------------------------------------------------------------------- */

static bool is_short(const vti_memory_sample *s, bool was)
{
    double factor = was ? 0.5 : 1;
    uint64_t low = s->total_bytes / AVAILABLE_PART * (was ? 2 : 1);
    return s->some_pressure >= SOME_PERCENT * factor || s->full_pressure >= FULL_PERCENT * factor ||
           (s->total_bytes && s->available_bytes < low);
}

static void look(vti_memory_watch *w)
{
    vti_memory_sample s = {0};
    vti_meminfo info;
    const char *text = read_text(w, "/proc", "meminfo");
    if (text && vti_parse_meminfo(text, &info)) {
        s.total_bytes = info.total_bytes;
        s.available_bytes = info.available_bytes;
    }
    look_at_groups(w, &s);
    look_at_pressure(w, "/proc/pressure", "memory", &s);
    if (w->has_group && w->group.version == 2)
        look_at_pressure(w, w->group.folder, "memory.pressure", &s);
    long page = sysconf(_SC_PAGESIZE);
    text = read_text(w, "/proc/self", "statm");
    if (text && page > 0) vti_parse_statm(text, (uint64_t)page, &s.own_bytes);
    uint64_t most = s.own_bytes + s.available_bytes;
    if (s.total_bytes) s.suggested_limit_bytes = most - most / 10;
    s.is_short = is_short(&s, w->sample.is_short);
    w->sample = s;
    w->has_sample = true;
    w->sampled_ns = vti_now_ns();
}

vti_memory_watch *vti_memory_watch_open(const char *root, uint32_t interval_ms)
{
    vti_memory_watch *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->root = strdup(root);
    w->text = malloc(TEXT_BYTES);
    w->interval_ns = (uint64_t)interval_ms * 1000000;
    w->trigger = -1;
    if (!w->root || !w->text || pthread_mutex_init(&w->lock, NULL) != 0) {
        free(w->root);
        free(w->text);
        free(w);
        return NULL;
    }
    find_group(w);
    if (!*root && interval_ms) w->trigger = find_trigger(w);
    return w;
}

void vti_memory_watch_close(vti_memory_watch *watch)
{
    if (!watch) return;
    if (watch->trigger >= 0) close(watch->trigger);
    pthread_mutex_destroy(&watch->lock);
    free(watch->root);
    free(watch->text);
    free(watch);
}

static vti_memory_sample sample(vti_memory_watch *w, bool now)
{
    pthread_mutex_lock(&w->lock);
    if (now || !w->has_sample || vti_now_ns() - w->sampled_ns >= w->interval_ns || was_stalled(w))
        look(w);
    vti_memory_sample newest = w->sample;
    pthread_mutex_unlock(&w->lock);
    return newest;
}

vti_memory_sample vti_memory_watch_sample(vti_memory_watch *watch)
{
    return sample(watch, false);
}

vti_memory_sample vti_memory_watch_sample_now(vti_memory_watch *watch)
{
    return sample(watch, true);
}

void vti_memory_watch_warn(vti_memory_watch *watch, const vt_log *log)
{
    vti_memory_sample s = vti_memory_watch_sample(watch);
    pthread_mutex_lock(&watch->lock);
    bool news = s.is_short && !watch->warned;
    watch->warned = s.is_short;
    pthread_mutex_unlock(&watch->lock);
    if (!news) return;
    vti_log(log, VT_LOG_WARNING,
            "memory is short on this device: %.1f of %.1f MiB are available%s, %.1f %% of the last "
            "ten seconds some task waited for memory; a smaller context or model would help",
            (double)s.available_bytes / 1048576, (double)s.total_bytes / 1048576,
            s.in_group ? " to this process's control group" : "", s.some_pressure);
}
