/* Chat templates: what is written, and which templates are recognised. */
#include "support.h"

#include "../src/chat_forms.h"
#include "../src/chat_jinja.h"
#include "../src/chat_render.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Renderings of published templates by Jinja; tests/data/README.md tells from where. */
#ifndef CHAT_CASES
#define CHAT_CASES "tests/data/chat.json"
#endif

enum { MESSAGES_MAX = 16, BOS = 1, EOS = 2 };

/* The text of a rendering, with <s> and </s> for its tokens; malloc'd. */
static char *text_of(const vti_rendering *r)
{
    char *text = malloc(r->bytes + 4 * r->count + 1), *to = text;
    const char *from = r->text;
    for (size_t i = 0; i < r->count; i++) {
        if (r->parts[i].kind == VTI_PART_TOKEN) {
            to = stpcpy(to, r->parts[i].token == BOS ? "<s>" : "</s>");
        } else {
            memcpy(to, from, r->parts[i].bytes);
            to += r->parts[i].bytes;
            from += r->parts[i].bytes;
        }
    }
    *to = 0;
    return text;
}

static char *render(const vti_chat_form *form, const char *system, const char *const *texts,
                    size_t count, bool skip_thoughts)
{
    vti_chat_message messages[MESSAGES_MAX];
    for (size_t i = 0; i < count; i++)
        messages[i] = (vti_chat_message){i % 2 ? VT_ROLE_ASSISTANT : VT_ROLE_USER,
                                         (char *)(uintptr_t)texts[i], strlen(texts[i])};
    vti_chat_view view = {
        .system = system, .system_bytes = system ? strlen(system) : 0, .messages = messages,
        .count = count, .date = form->dated_today ? "05 Mar 2031" : VTI_CHAT_FIXED_DATE,
        .bos = BOS, .eos = EOS, .skip_thoughts = skip_thoughts,
    };
    vti_rendering r;
    assert_int_equal(vti_chat_render(form, &view, &r, NULL), VT_OK);
    char *text = text_of(&r);
    vti_rendering_free(&r);
    return text;
}

/* --- published templates ----------------------------------------------------------------------- */

static bool find_template(const json_t *item, vti_chat_template *t)
{
    const char *name = json_string_value(json_object_get(item, "form"));
    const char *source = json_string_value(json_object_get(item, "source"));
    if (name) return vti_chat_template_named(name, t, NULL) == VT_OK;
    return vti_chat_template_recognise(source, strlen(source), t);
}

/* Returns whether it was checked: a template that is not recognised is no failure here. */
static bool check_case(size_t index, const json_t *item)
{
    vti_chat_template t;
    const char *texts[MESSAGES_MAX];
    const char *from = json_string_value(json_object_get(item, "from"));
    const char *expected = json_string_value(json_object_get(item, "text"));
    const char *system = json_string_value(json_object_get(item, "system"));
    const json_t *messages = json_object_get(item, "messages");
    if (!find_template(item, &t)) {
        printf("case %zu, %s: not recognised\n", index, from);
        return false;
    }
    size_t count = json_array_size(messages);
    for (size_t i = 0; i < count; i++) texts[i] = json_string_value(json_array_get(messages, i));
    if (!expected) { /* the template raised an exception */
        if (!system || t.form.system_place != VTI_SYSTEM_REFUSED)
            fail_msg("case %zu, %s: the template refuses this, we do not", index, from);
    } else if (!(system && t.form.system_place == VTI_SYSTEM_REFUSED)) {
        char *text = render(&t.form, system, texts, count,
                            json_is_true(json_object_get(item, "skip_thoughts")));
        if (strcmp(text, expected) != 0)
            fail_msg("case %zu, %s (%s):\n%s\nexpected:\n%s", index, from, t.form.name, text,
                     expected);
        free(text);
    }
    vti_chat_template_free(&t);
    return true;
}

static void test_published_renderings(void **state)
{
    (void)state;
    json_t *cases = json_load_file(CHAT_CASES, 0, NULL);
    assert_true(json_array_size(cases) >= 100);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(i, json_array_get(cases, i));
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_renderings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
