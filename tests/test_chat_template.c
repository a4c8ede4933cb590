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

/* --- published templates ---------------------------------------------------------------------- */

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

/* --- canonical form --------------------------------------------------------------------------- */

#define L VTI_LITERAL
#define E VTI_END

static void check_canonical(const char *source, const char *expected)
{
    char *canonical = vti_jinja_canonical(source, strlen(source));
    assert_string_equal(canonical, expected);
    free(canonical);
}

static void test_canonical_form(void **state)
{
    (void)state;
    check_canonical("a {{ x }} b", "a {{x}} b");
    check_canonical("a\n{{- x -}}\n b", "a{{x}}b");
    check_canonical("a\n  {% if x %}\nb{% endif %}\n", "a\n{%ifx%}b{%endif%}");
    check_canonical("a  {% if x %} b", "a  {%ifx%} b"); /* not alone in its line */
    check_canonical("{{ m['role'] + m[\"content\"] }}", "{{m.role+m.content}}");
    check_canonical("{{ m['two words'] }}", "{{m[" L "two words" E "]}}");
    check_canonical("{{ 'a' + \"b\\n\" + x + 'c' }}", "{{" L "ab\n" E "+x+" L "c" E "}}");
    check_canonical("{{ 'it\\'s \"}}\"' }}", "{{" L "it's \"}}\"" E "}}");
    check_canonical("x {#- there's nothing -#} y", "xy");
    check_canonical("{{ 'open", "{{" L "open" E);
    check_canonical("{{", "{{");
    check_canonical("{#", "");
    check_canonical("{%-", "{%");
    check_canonical("", "");
    check_canonical("a\002b\003c", "abc"); /* the marks are ours alone */
}

/* No bytes are read or written past the ends; AddressSanitizer looks on. */
static void test_any_template_is_survived(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "{{", "}}", "{%", "%}", "-", "'", "\"", "\\", "[", "]", "+", "{#", "#}", " ", "\n", "x",
        "<|im_start|>", "message.role", "message['content']", "<|im_end|>", "[INST]", "[/INST]",
        "add_generation_prompt", "enable_thinking is false", "<|im_start|>assistant\n", "eos_token",
    };
    test_random random = {.state = 11};
    for (int round = 0; round < 20000; round++) {
        char text[512] = "";
        size_t bytes = 0;
        for (uint64_t n = test_random_u64(&random) % 16; n > 0; n--) {
            const char *piece = pieces[test_random_u64(&random) % (sizeof pieces / sizeof *pieces)];
            memcpy(text + bytes, piece, strlen(piece));
            bytes += strlen(piece);
        }
        char *exact = malloc(bytes ? bytes : 1);
        memcpy(exact, text, bytes);
        char *canonical = vti_jinja_canonical(exact, bytes);
        assert_true(strlen(canonical) <= bytes + 1);
        vti_chat_template t;
        vti_chat_template_recognise(exact, bytes, &t);
        vti_chat_template_free(&t);
        free(canonical);
        free(exact);
    }
}

/* --- recognising ------------------------------------------------------------------------------ */

#define CHATML_TURNS                                                                               \
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + "   \
    "'<|im_end|>' + '\\n' }}{% endfor %}"
#define CHATML_ASK "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

static void recognise(const char *source, const char *name, vti_chat_template *t)
{
    if (!vti_chat_template_recognise(source, strlen(source), t)) {
        if (name) fail_msg("not recognised: %s", source);
        return;
    }
    if (!name) fail_msg("taken for %s: %s", t->form.name, source);
    assert_string_equal(t->form.name, name);
}

static void test_chatml_details(void **state)
{
    (void)state;
    vti_chat_template t;
    recognise(CHATML_TURNS CHATML_ASK, "chatml", &t);
    assert_null(t.form.default_system);
    assert_false(t.form.drops_thoughts);
    assert_false(t.form.begins_with_bos);
    vti_chat_template_free(&t);
    recognise("{{ bos_token }}{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nUse "
              "\\\\boxed{}.<|im_end|>\\n' }}{% endif %}" CHATML_TURNS CHATML_ASK, "chatml", &t);
    assert_string_equal(t.form.default_system, "Use \\boxed{}.");
    assert_true(t.form.begins_with_bos);
    vti_chat_template_free(&t);
    recognise("{{ x.split('</think>')[-1] }}" CHATML_TURNS
              "{{ '<|im_start|>assistant\\n<think>\\n' }}", "chatml", &t);
    assert_string_equal(t.form.answer_open, "<|im_start|>assistant\n<think>\n");
    assert_true(t.form.drops_thoughts);
    vti_chat_template_free(&t);
    recognise(CHATML_TURNS "{{ '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and "
              "enable_thinking is false %}{{ 'none' }}{% endif %}", "chatml", &t);
    assert_string_equal(t.form.answer_open, "<|im_start|>assistant\n");
    assert_string_equal(t.form.skip_thoughts, "none");
    vti_chat_template_free(&t);
}

static void test_families_by_their_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *source, *name;
    } cases[] = {
        {"{{ bos_token }}{{ '<start_of_turn>' + role + '\\n' + x | trim + '<end_of_turn>\\n' }}",
         "gemma"},
        {"{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | "
         "trim + '<|eot_id|>' }}", "llama-3"},
        {"{{ \"Cutting Knowledge Date: December 2023\\n\" }}{{ '<|start_header_id|>' + message.role"
         " "
         "+ '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}", "llama-3.1"},
        {"{{ '<<SYS>>' }}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{{ ' ' + "
         "content.strip() + ' ' + eos_token }}", "llama-2"},
        {"{{ '[INST] ' + message.content + ' [/INST]' }}{{ message.content + eos_token }}",
         "mistral"},
        {"{{ '<|user|>\\n' + message.content + '<|end|>\\n' }}", "phi-3"},
        {"{{ '<|user|>\\n' + message.content + eos_token }}\n", "zephyr"},
        /* Their tokens in another order or with another meaning: not known. */
        {"{{ '<|user|>\\n' + message.content + '\\n' }}{{ message.content + eos_token }}", NULL},
        {"{{ '<|im_start|>user<|im_sep|>' + message.content + '<|im_end|>' }}", NULL},
        {"{{ '<|start_header_id|>' }}{{ 'Cutting Knowledge Date: May 2029' }}<|eot_id|>", NULL},
        {"{{ 'USER: ' + message.content + eos_token }}", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vti_chat_template t;
        recognise(cases[i].source, cases[i].name, &t);
        vti_chat_template_free(&t);
    }
}

static void test_every_listed_name_is_known(void **state)
{
    (void)state;
    char *names = strdup(vti_chat_template_names), *rest = names;
    size_t count = 0;
    for (char *name; (name = strsep(&rest, ",")) != NULL; count++) {
        vti_chat_template t;
        if (*name == ' ') name++;
        assert_int_equal(vti_chat_template_named(name, &t, NULL), VT_OK);
        assert_string_equal(t.form.name, name);
    }
    assert_int_equal(count, vti_chat_form_count);
    free(names);
    vt_error err;
    vti_chat_template t;
    assert_int_equal(vti_chat_template_named("chatlm", &t, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "chatlm"));
    assert_non_null(strstr(err.message, "chatml, qwen1.5"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_renderings),
        cmocka_unit_test(test_canonical_form),
        cmocka_unit_test(test_any_template_is_survived),
        cmocka_unit_test(test_chatml_details),
        cmocka_unit_test(test_families_by_their_tokens),
        cmocka_unit_test(test_every_listed_name_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
