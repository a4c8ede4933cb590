/* DESIGN: src → {kernels, planner, net}; those three include nothing of ours; voltron-run uses only
 * the public header. A look at every #include "…" is enough to keep it so. */
#include "support.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct rule {
    const char *folder;
    const char *allowed; /* folder that an include may lead to besides its own; NULL: none */
} rule;

static unsigned includes_seen;

/* The folder (first part) of `path`, its ".." resolved; "" for the top. */
static void resolve(const char *file, const char *include, char *out, size_t capacity)
{
    char joined[1024], *parts[64];
    int count = 0;
    snprintf(joined, sizeof joined, "%s", file);
    *strrchr(joined, '/') = 0;
    size_t at = strlen(joined);
    snprintf(joined + at, sizeof joined - at, "/%s", include);
    for (char *part = strtok(joined, "/"); part; part = strtok(NULL, "/")) {
        if (strcmp(part, "..") == 0 && count)
            count--;
        else if (strcmp(part, ".") != 0)
            parts[count++] = part;
    }
    snprintf(out, capacity, "%s", count > 1 ? parts[0] : "");
    if (count > 2 && strcmp(parts[0], "src") == 0 && strcmp(parts[1], "cli") == 0)
        snprintf(out, capacity, "src/cli");
}

static void check_file(const rule *r, const char *path)
{
    char line[512], include[256], folder[64];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, " # include \"%255[^\"]\"", include) != 1) continue;
        includes_seen++;
        if (strcmp(include, "voltron.h") == 0)
            snprintf(folder, sizeof folder, "include");
        else
            resolve(path, include, folder, sizeof folder);
        bool fine = strcmp(folder, r->folder) == 0 ||
                    (r->allowed && strstr(r->allowed, folder) && folder[0]);
        if (!fine) fail_msg("%s includes \"%s\" (folder %s)", path, include, folder);
    }
    fclose(file);
}

static void check_folder(const rule *r, const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[512];
        struct stat facts;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        const char *end = strrchr(entry->d_name, '.');
        if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) {
            if (strcmp(path, "src/cli") != 0 || strcmp(r->folder, "src/cli") == 0)
                check_folder(r, path);
        } else if (end && (strcmp(end, ".c") == 0 || strcmp(end, ".h") == 0)) {
            check_file(r, path);
        }
    }
    closedir(dir);
}

static void dependencies_point_down(void **state)
{
    (void)state;
    static const rule rules[] = {
        {"kernels", NULL},
        {"planner", NULL},
        {"net", NULL},
        {"src", "include kernels planner net"},
        {"src/cli", "include"},
    };
    includes_seen = 0;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        check_folder(&rules[i], rules[i].folder);
    assert_true(includes_seen > 50); /* it did look at something */
}

static void resolving(void **state)
{
    (void)state;
    char folder[64];
    resolve("src/tokenizer/bpe.c", "../gguf.h", folder, sizeof folder);
    assert_string_equal(folder, "src");
    resolve("src/stage.h", "../kernels/kernels.h", folder, sizeof folder);
    assert_string_equal(folder, "kernels");
    resolve("kernels/a.c", "../src/error.h", folder, sizeof folder);
    assert_string_equal(folder, "src");
    resolve("src/cli/main.c", "cli.h", folder, sizeof folder);
    assert_string_equal(folder, "src/cli");
    resolve("src/cli/main.c", "../error.h", folder, sizeof folder);
    assert_string_equal(folder, "src");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resolving),
        cmocka_unit_test(dependencies_point_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
