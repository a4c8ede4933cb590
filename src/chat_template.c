/* chat_template.c: which form the template in a file is.
 *
 * Families are told apart by their control tokens; what varies inside a family is read from the
 * template. What does not write its turns in a known way is not recognised. */
#include "chat_template.h"

#include <stdlib.h>
#include <string.h>

#include "chat_forms.h"
#include "chat_jinja.h"

#define L VTI_LITERAL
#define E VTI_END

#define TEMPLATE_KEY VTI_CHAT_TEMPLATE_KEY

/* Far more than any published template has. */
enum { SOURCE_MAX = 1 << 20 };

const char vti_chat_template_names[] =
    "chatml, qwen1.5, qwen2, qwen2.5, qwen3, gemma, llama-2, llama-3, llama-3.1, mistral-v1, "
    "mistral-v3, mistral-nemo, mistral-v7, mistral-small, phi-3, zephyr";

typedef bool (*recogniser)(const char *c, vti_chat_template *out);

static void take_form(vti_chat_template *out, const char *name)
{
    *out = (vti_chat_template){.form = *vti_chat_form_find(name)};
}

/* Keeps a malloc'd string for the form, or `otherwise` where there is none. */
static const char *own(vti_chat_template *t, char *text, const char *otherwise)
{
    size_t room = sizeof t->owned / sizeof t->owned[0];
    for (size_t i = 0; text && i < room; i++) {
        if (t->owned[i]) continue;
        t->owned[i] = text;
        return text;
    }
    free(text);
    return otherwise;
}

static const char *last_place(const char *text, const char *piece)
{
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, piece)) != NULL; at++) last = at;
    return last;
}

static char *join(const char *a, const char *b)
{
    size_t a_bytes = strlen(a), b_bytes = strlen(b);
    char *text = malloc(a_bytes + b_bytes + 1);
    if (!text) return NULL;
    memcpy(text, a, a_bytes);
    memcpy(text + a_bytes, b, b_bytes + 1);
    return text;
}

/* --- chatml, Qwen ----------------------------------------------------------------------------- */

static void append_to_answer_open(vti_chat_template *out, const char *text)
{
    const char *open = out->form.answer_open;
    if (*text) out->form.answer_open = own(out, join(open, text), open);
}

/* Reasoning models begin the answer with <think>, always or unless told otherwise; what is written
 * here is what the template does when it is told nothing. */
static void read_answer_open(const char *c, vti_chat_template *out)
{
    const char *place = last_place(c, out->form.answer_open);
    if (!place) return;
    char *rest = vti_jinja_between(place, out->form.answer_open, "");
    char *skip = vti_jinja_between(place, "enable_thinkingisfalse%}{{" L, E);
    char *unless = vti_jinja_between(place, "ifnotenable_thinking%}{{" L, E);
    char *otherwise = vti_jinja_between(place, "{%else%}{{" L, E);
    if (rest) append_to_answer_open(out, rest);
    out->form.skip_thoughts = own(out, skip, NULL);
    if (unless) append_to_answer_open(out, unless);
    if (otherwise && vti_jinja_has(place, "enable_thinking")) {
        /* The switch replaces what stands in the other branch: two beginnings, only one is kept. */
        append_to_answer_open(out, otherwise);
        out->form.skip_thoughts = NULL;
    }
    free(rest);
    free(unless);
    free(otherwise);
}

static bool recognise_chatml(const char *c, vti_chat_template *out)
{
    bool turns = vti_jinja_has(c, L "<|im_start|>" E "+message.role+" L "\n") ||
                 vti_jinja_has(c, "<|im_start|>user\n");
    bool trims = vti_jinja_has(c, "message.content|trim+" L "<|im_end|>") ||
                 vti_jinja_has(c, "message.content.strip()+" L "<|im_end|>");
    bool ends = trims || vti_jinja_has(c, "message.content+" L "<|im_end|>") ||
                vti_jinja_has(c, "message.content}}<|im_end|>");
    if (!turns || !ends || vti_jinja_has(c, "<|im_sep|>") || vti_jinja_has(c, "strftime_now"))
        return false;
    take_form(out, "chatml");
    char *text = vti_jinja_between(c, "<|im_start|>system\n", "<|im_end|>");
    out->form.default_system = own(out, text, NULL);
    out->form.drops_thoughts = vti_jinja_has(c, "split(" L "</think>" E ")");
    out->form.begins_with_bos = vti_jinja_has(c, "bos_token");
    if (trims) out->form.trim = VTI_TRIM_CONTENT_SYSTEM;
    read_answer_open(c, out);
    return true;
}

/* --- gemma ------------------------------------------------------------------------------------ */

static bool recognise_gemma(const char *c, vti_chat_template *out)
{
    if (!vti_jinja_has(c, "<start_of_turn>") || !vti_jinja_has(c, "<end_of_turn>")) return false;
    take_form(out, "gemma");
    out->form.begins_with_bos = vti_jinja_has(c, "bos_token") || vti_jinja_has(c, "<bos>");
    if (vti_jinja_has(c, "System role not supported"))
        out->form.system_place = VTI_SYSTEM_REFUSED;
    if (vti_jinja_has(c, "<start_of_turn>" E "+message.role+")) {
        /* A shortened one that does not rename the assistant. */
        out->form.system_place = VTI_SYSTEM_TURN;
        out->form.trim = VTI_TRIM_CONTENT_SYSTEM;
        out->form.system_open = "<start_of_turn>system\n";
        out->form.system_close = "<end_of_turn>\n";
        out->form.assistant_open = "<start_of_turn>assistant\n";
    }
    return true;
}

/* --- Llama, Mistral --------------------------------------------------------------------------- */

static bool recognise_llama3(const char *c, vti_chat_template *out)
{
    if (!vti_jinja_has(c, "<|start_header_id|>") || !vti_jinja_has(c, "<|eot_id|>")) return false;
    bool preface = vti_jinja_has(c, "Cutting Knowledge Date: ");
    if (preface && !vti_jinja_has(c, L "Cutting Knowledge Date: December 2023\n" E)) return false;
    take_form(out, preface ? "llama-3.1" : "llama-3");
    out->form.begins_with_bos = vti_jinja_has(c, "bos_token");
    out->form.dated_today = preface && vti_jinja_has(c, "strftime_now");
    if (!vti_jinja_has(c, "message.content|trim")) out->form.trim = VTI_TRIM_NOTHING;
    return true;
}

static bool recognise_llama2(const char *c, vti_chat_template *out)
{
    if (!vti_jinja_has(c, "<<SYS>>") || !vti_jinja_has(c, L "[INST] " E "+content.strip()+"))
        return false;
    if (!vti_jinja_has(c, L " " E "+content.strip()+" L " " E "+eos_token")) return false;
    take_form(out, "llama-2");
    if (!vti_jinja_has(c, "bos_token+" L "[INST]")) {
        out->form.user_open = "[INST] ";
        out->form.begins_with_bos = vti_jinja_has(c, "bos_token");
    }
    /* The switch was filled in when the template was written. */
    if (!vti_jinja_has(c, "false==true"))
        out->form.default_system = own(out, vti_jinja_between(c, "system_message=" L, E), NULL);
    return true;
}

static bool recognise_mistral_v7(const char *c, vti_chat_template *out)
{
    if (!vti_jinja_has(c, L "[SYSTEM_PROMPT] " E "+message.content+" L "[/SYSTEM_PROMPT]" E) ||
        !vti_jinja_has(c, L "[INST] " E "+message.content+" L "[/INST]" E) ||
        !vti_jinja_has(c, L " " E "+message.content+eos_token"))
        return false;
    take_form(out, "mistral-v7");
    out->form.begins_with_bos = vti_jinja_has(c, "bos_token");
    return true;
}

/* The published versions differ in spaces and in where the system text goes. */
static bool recognise_mistral(const char *c, vti_chat_template *out)
{
    bool user = vti_jinja_has(c, "[INST]" E "+message.content+" L) ||
                vti_jinja_has(c, "[INST] " E "+message.content+" L);
    if (!user || vti_jinja_has(c, "<<SYS>>") || vti_jinja_has(c, "[SYSTEM_PROMPT]")) return false;
    if (!vti_jinja_has(c, "message.content+eos_token") &&
        !vti_jinja_has(c, "message.content|trim+eos_token"))
        return false;
    take_form(out, "mistral-v1"); /* what follows may make it another version */
    out->form.name = "mistral";
    vti_chat_form *form = &out->form;
    if (!vti_jinja_has(c, L " [INST] " E "+"))
        form->user_open = vti_jinja_has(c, L "[INST] " E "+") ? "[INST] " : "[INST]";
    if (!vti_jinja_has(c, "+" L " [/INST]" E)) form->user_close = "[/INST]";
    if (!vti_jinja_has(c, L " " E "+message.content")) form->assistant_open = "";
    if (vti_jinja_has(c, "message.content+eos_token+" L " " E))
        form->assistant_close = VTI_CHAT_EOS " ";
    if (vti_jinja_has(c, "message.content|trim+eos_token")) form->trim = VTI_TRIM_ASSISTANT;
    form->begins_with_bos = vti_jinja_has(c, "bos_token");
    if (!vti_jinja_has(c, "system_message"))
        form->system_place = VTI_SYSTEM_REFUSED;
    else if (vti_jinja_has(c, "loop.lastandsystem_message"))
        form->system_place = VTI_SYSTEM_LAST_USER;
    return true;
}

/* --- Phi, Zephyr ------------------------------------------------------------------------------ */

static bool recognise_phi3(const char *c, vti_chat_template *out)
{
    bool any_role = vti_jinja_has(c, L "<|" E "+message.role+" L "|>\n" E "+message.content+" L
                                     "<|end|>\n");
    if (!any_role && !vti_jinja_has(c, L "<|user|>\n" E "+message.content+" L "<|end|>\n"))
        return false;
    take_form(out, "phi-3");
    out->form.begins_with_bos = vti_jinja_has(c, "bos_token");
    out->form.skips_empty_system = !any_role;
    if (!any_role && !vti_jinja_has(c, "<|system|>"))
        out->form.system_place = VTI_SYSTEM_REFUSED;
    return true;
}

static bool recognise_zephyr(const char *c, vti_chat_template *out)
{
    if (!vti_jinja_has(c, L "<|user|>\n" E "+message.content+eos_token}}\n") &&
        !vti_jinja_has(c, L "<|user|>\n" E "+message.content+eos_token+" L "\n" E))
        return false;
    take_form(out, "zephyr");
    out->form.begins_with_bos = vti_jinja_has(c, "bos_token");
    return true;
}

/* --- reading ---------------------------------------------------------------------------------- */

bool vti_chat_template_recognise(const char *source, size_t bytes, vti_chat_template *out)
{
    static const recogniser families[] = {
        recognise_chatml,  recognise_gemma,      recognise_llama3, recognise_llama2,
        recognise_mistral, recognise_mistral_v7, recognise_phi3,   recognise_zephyr,
    };
    *out = (vti_chat_template){0};
    char *canonical = bytes <= SOURCE_MAX ? vti_jinja_canonical(source, bytes) : NULL;
    if (!canonical) return false;
    bool found = false;
    for (size_t i = 0; i < sizeof families / sizeof families[0] && !found; i++)
        found = families[i](canonical, out);
    free(canonical);
    return found;
}

vt_status vti_chat_template_read(const vt_gguf *gguf, vti_chat_template *out, vt_error *err)
{
    vti_gguf_string source = {"", 0};
    *out = (vti_chat_template){0};
    VTI_TRY(vti_gguf_get_string(gguf, TEMPLATE_KEY, false, &source, err));
    if (source.bytes == 0)
        return vti_fail(err, VT_ERR_UNSUPPORTED,
                        "%s has no chat template (" TEMPLATE_KEY "); one can be chosen by name: %s",
                        vti_gguf_name(gguf), vti_chat_template_names);
    if (vti_chat_template_recognise(source.data, (size_t)source.bytes, out)) return VT_OK;
    return vti_fail(err, VT_ERR_UNSUPPORTED,
                    "%s: its chat template (" TEMPLATE_KEY ") is none of those that are known; the "
                    "right one can be chosen by name: %s",
                    vti_gguf_name(gguf), vti_chat_template_names);
}

vt_status vti_chat_template_named(const char *name, vti_chat_template *out, vt_error *err)
{
    const vti_chat_form *form = vti_chat_form_find(name);
    *out = (vti_chat_template){0};
    if (!form)
        return vti_fail(err, VT_ERR_ARGUMENT, "there is no chat template \"%s\"; known are %s",
                        name, vti_chat_template_names);
    out->form = *form;
    return VT_OK;
}

void vti_chat_template_free(vti_chat_template *t)
{
    for (size_t i = 0; i < sizeof t->owned / sizeof t->owned[0]; i++) free(t->owned[i]);
    *t = (vti_chat_template){0};
}
