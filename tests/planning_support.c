#include "planning_support.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const vt_model *planning_model(void)
{
    static vt_model *model;
    vt_model_params params = vt_model_params_default();
    params.threads = 1;
    if (!model)
        assert_int_equal(vt_model_open("src/assets/stories-4m-f16.gguf", &params, &model, NULL),
                         VT_OK);
    return model;
}

const char *planning_cluster(unsigned tablet, unsigned phone, unsigned board)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "{\"devices\": ["
             "{\"name\": \"tablet\", \"memory\": \"%uM\", \"medium\": \"wifi-ac-80\","
             " \"compute\": {\"gmacs_per_s\": 60, \"gbytes_per_s\": 20}},"
             "{\"name\": \"phone\", \"memory\": \"%uM\", \"medium\": \"wifi-ac-80\","
             " \"compute\": {\"gmacs_per_s\": 40, \"gbytes_per_s\": 15}},"
             "{\"name\": \"board\", \"memory\": \"%uM\", \"medium\": \"ethernet-1000\","
             " \"compute\": {\"gmacs_per_s\": 10, \"gbytes_per_s\": 5}}]}",
             tablet, phone, board);
    return text;
}

/* A file without a disk. */
static int open_text(const char *text, char path[64])
{
    int memory = memfd_create("cluster", MFD_CLOEXEC);
    assert_true(memory >= 0 && write(memory, text, strlen(text)) == (ssize_t)strlen(text));
    snprintf(path, 64, "/proc/self/fd/%d", memory);
    return memory;
}

vt_plan *planning_open(const char *text, const vt_plan_params *params)
{
    char path[64];
    vt_plan *plan;
    vt_error err = {.message = ""};
    int memory = open_text(text, path);
    if (vt_plan_open(planning_model(), path, params, &plan, &err) != VT_OK)
        fail_msg("%s\n%s", err.message, text);
    close(memory);
    return plan;
}

void planning_expect_error(const char *text, const vt_plan_params *params, vt_status status,
                           const char *words)
{
    char path[64];
    vt_plan *plan;
    vt_error err = {.message = ""};
    int memory = open_text(text, path);
    vt_status got = vt_plan_open(planning_model(), path, params, &plan, &err);
    if (got != status || plan || !strstr(err.message, words))
        fail_msg("%s\ngave %d, \"%s\", expected %d, \"%s\"", text, got, err.message, status, words);
    close(memory);
}

char *planning_text(const vt_plan *plan, vt_plan_form form)
{
    size_t bytes = vt_plan_text(plan, form, NULL, 0);
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    assert_true(bytes > 0);
    assert_int_equal(vt_plan_text(plan, form, text, bytes + 1), bytes);
    assert_int_equal(strlen(text), bytes);
    return text;
}

const char *planning_remark(const vt_plan *plan, const char *words)
{
    const char *remark;
    for (size_t i = 0; (remark = vt_plan_remark(plan, i)); i++)
        if (strstr(remark, words)) return remark;
    return NULL;
}

/* --- XML -------------------------------------------------------------------------------------- */

enum { DEPTH_MAX = 16, NAME_MAX_BYTES = 32 };

typedef struct xml {
    const char *at;
    char open[DEPTH_MAX][NAME_MAX_BYTES];
    int depth, roots;
} xml;

static void skip_space(xml *x)
{
    while (isspace((unsigned char)*x->at)) x->at++;
}

static bool take_name(xml *x, char name[NAME_MAX_BYTES])
{
    int length = 0;
    if (!isalpha((unsigned char)*x->at)) return false;
    while ((isalnum((unsigned char)*x->at) || strchr("-:_", *x->at)) && *x->at) {
        if (length + 1 == NAME_MAX_BYTES) return false;
        name[length++] = *x->at++;
    }
    name[length] = 0;
    return true;
}

/* Characters up to `end`: no '<', and '&' only as an entity. */
static bool take_characters(xml *x, char end)
{
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    for (; *x->at && *x->at != end; x->at++) {
        bool known = *x->at != '&';
        if (*x->at == '<' || (unsigned char)*x->at < ' ') {
            if (*x->at != '\n') return false;
        }
        for (int i = 0; i < 4; i++)
            known = known || strncmp(x->at, entities[i], strlen(entities[i])) == 0;
        if (!known) return false;
    }
    return true;
}

static const char *take_tag(xml *x)
{
    char name[NAME_MAX_BYTES], attribute[NAME_MAX_BYTES], seen[512] = " ";
    bool closes = *x->at == '/';
    if (closes) x->at++;
    if (!take_name(x, name)) return "a tag without a name";
    for (skip_space(x); isalpha((unsigned char)*x->at); skip_space(x)) {
        char padded[NAME_MAX_BYTES + 2];
        if (closes) return "a closing tag with attributes";
        if (!take_name(x, attribute) || strncmp(x->at, "=\"", 2) != 0) return "a bad attribute";
        x->at += 2;
        if (!take_characters(x, '"') || *x->at++ != '"') return "a bad value";
        snprintf(padded, sizeof padded, " %s ", attribute);
        if (strstr(seen, padded)) return "an attribute twice";
        snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s ", attribute);
    }
    bool empty = *x->at == '/';
    if (empty) x->at++;
    if (*x->at++ != '>') return "a tag without end";
    if (closes)
        return x->depth > 0 && strcmp(x->open[--x->depth], name) == 0 ? NULL : "tags that cross";
    if (x->depth == 0 && x->roots++) return "two roots";
    if (empty) return NULL;
    if (x->depth == DEPTH_MAX) return "too deep";
    strcpy(x->open[x->depth++], name);
    return NULL;
}

const char *planning_check_xml(const char *text)
{
    xml x = {.at = text};
    while (*x.at) {
        if (*x.at == '<') {
            x.at++;
            const char *wrong = take_tag(&x);
            if (wrong) return wrong;
        } else if (x.depth == 0) {
            if (!isspace((unsigned char)*x.at++)) return "text outside of the root";
        } else if (!take_characters(&x, '<')) {
            return "a character that must be an entity";
        }
    }
    return x.depth == 0 && x.roots == 1 ? NULL : "a tag is open at the end";
}
