/* chat.c: the messages of a conversation, and answering them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "chat_internal.h"
#include "model.h"

/* Without a date from the caller templates that want one say this, as Llama 3.1's own does. */
vt_chat_params vt_chat_params_default(void)
{
    return (vt_chat_params){.date = VTI_CHAT_FIXED_DATE};
}

const char *vt_chat_template_names(void) { return vti_chat_template_names; }

bool vt_model_has_chat_template(const vt_model *model)
{
    vti_gguf_string source = {"", 0};
    return vti_gguf_get_string(model->gguf, VTI_CHAT_TEMPLATE_KEY, false, &source, NULL) == VT_OK &&
           source.bytes > 0;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Phi-3's published SentencePiece vocabulary swallows white space behind its tags. */
static void swallow_spaces(vt_chat *chat)
{
    vti_chat_form *form = &chat->template.form;
    bool tagged = strcmp(form->name, "phi-3") == 0 &&
                  vti_tokenizer_is_spm(chat->model->tokenizer) &&
                  vti_chat_has_tag(chat->model, "<|user|>");
    if (!tagged) return;
    form->system_open = "<|system|>";
    form->user_open = "<|user|>";
    form->assistant_open = form->answer_open = "<|assistant|>";
    form->system_close = form->user_close = form->assistant_close = "<|end|>";
    form->trim = VTI_TRIM_LEFT;
}

/* A template whose tags are no tokens of this model works as plain text at best. */
static void warn_about_tags(const vt_chat *chat)
{
    static const char *const tags[] = {"<|im_start|>", "<start_of_turn>", "<|start_header_id|>"};
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!strstr(chat->template.form.user_open, tags[i])) continue;
        if (vti_chat_has_tag(chat->model, tags[i])) continue;
        vti_log(&chat->model->log, VT_LOG_WARNING,
                "the chat template %s needs the token %s, which this model's vocabulary does not "
                "have; it was hardly trained with this template",
                chat->template.form.name, tags[i]);
    }
}

static vt_status open_chat(vt_chat *chat, const vt_chat_params *p, vt_error *err)
{
    if (p->template_name)
        VTI_TRY(vti_chat_template_named(p->template_name, &chat->template, err));
    else
        VTI_TRY(vti_chat_template_read(chat->model->gguf, &chat->template, err));
    const vti_chat_form *form = &chat->template.form;
    if (p->skip_thoughts && !form->skip_thoughts)
        return vti_fail(err, VT_ERR_UNSUPPORTED,
                        "the chat template %s has no switch for thoughts", form->name);
    chat->skip_thoughts = p->skip_thoughts;
    const char *date = p->date && form->dated_today ? p->date : VTI_CHAT_FIXED_DATE;
    if (strcmp(form->name, "llama-3.1") == 0 && p->template_name && p->date) date = p->date;
    chat->date = strdup(date);
    if (!chat->date) return vti_fail(err, VT_ERR_MEMORY, "no memory for a chat");
    swallow_spaces(chat);
    warn_about_tags(chat);
    return VT_OK;
}

vt_status vt_chat_open(const vt_model *model, const vt_chat_params *params, vt_chat **out,
                       vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_chat_open: out is NULL");
    *out = NULL;
    if (!model) return vti_fail(err, VT_ERR_ARGUMENT, "vt_chat_open: model is NULL");
    vt_chat_params defaults = vt_chat_params_default();
    vt_chat *chat = calloc(1, sizeof *chat);
    if (!chat) return vti_fail(err, VT_ERR_MEMORY, "no memory for a chat");
    chat->model = model;
    vt_status status = open_chat(chat, params ? params : &defaults, err);
    if (status == VT_OK)
        *out = chat;
    else
        vt_chat_close(chat);
    return status;
}

void vt_chat_close(vt_chat *chat)
{
    if (!chat) return;
    vt_chat_truncate(chat, 0);
    vti_chat_template_free(&chat->template);
    free(chat->messages);
    free(chat->system);
    free(chat->date);
    free(chat);
}

const char *vt_chat_template(const vt_chat *chat) { return chat->template.form.name; }

/* --- messages --------------------------------------------------------------------------------- */

static char *copy_text(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (!copy) return NULL;
    if (bytes) memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return copy;
}

vt_status vt_chat_set_system(vt_chat *chat, const char *text, size_t bytes, vt_error *err)
{
    char *copy = NULL;
    if (text && chat->template.form.system_place == VTI_SYSTEM_REFUSED)
        return vti_fail(err, VT_ERR_UNSUPPORTED,
                        "the chat template %s has no place for a system text",
                        chat->template.form.name);
    if (text && !(copy = copy_text(text, bytes)))
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a system text of %zu bytes", bytes);
    free(chat->system);
    chat->system = copy;
    chat->system_bytes = copy ? bytes : 0;
    return VT_OK;
}

const char *vt_chat_system(const vt_chat *chat, size_t *bytes)
{
    if (bytes) *bytes = chat->system_bytes;
    return chat->system;
}

static vt_status reserve_message(vt_chat *chat, vt_error *err)
{
    if (chat->count < chat->room) return VT_OK;
    size_t room = chat->room * 2 + 8;
    vti_chat_message *messages = realloc(chat->messages, room * sizeof *messages);
    if (!messages) return vti_fail(err, VT_ERR_MEMORY, "no memory for %zu messages", room);
    chat->messages = messages;
    chat->room = room;
    return VT_OK;
}

vt_status vt_chat_add(vt_chat *chat, vt_role role, const char *text, size_t bytes, vt_error *err)
{
    vt_role expected = chat->count % 2 ? VT_ROLE_ASSISTANT : VT_ROLE_USER;
    if (role != expected)
        return vti_fail(err, VT_ERR_ARGUMENT, "message %zu must be the %s's: user and assistant "
                        "take turns", chat->count,
                        expected == VT_ROLE_USER ? "user" : "assistant");
    if (!text && bytes) return vti_fail(err, VT_ERR_ARGUMENT, "text is NULL");
    VTI_TRY(reserve_message(chat, err));
    char *copy = copy_text(text, bytes);
    if (!copy) return vti_fail(err, VT_ERR_MEMORY, "no memory for a message of %zu bytes", bytes);
    chat->messages[chat->count++] = (vti_chat_message){role, copy, bytes};
    return VT_OK;
}

size_t vt_chat_count(const vt_chat *chat) { return chat->count; }

vt_status vt_chat_get(const vt_chat *chat, size_t index, vt_role *role, const char **text,
                      size_t *bytes)
{
    if (index >= chat->count) return VT_ERR_ARGUMENT;
    *role = chat->messages[index].role;
    *text = chat->messages[index].text;
    if (bytes) *bytes = chat->messages[index].bytes;
    return VT_OK;
}

void vt_chat_truncate(vt_chat *chat, size_t count)
{
    while (chat->count > count) free(chat->messages[--chat->count].text);
    if (chat->left_out > chat->count) chat->left_out = 0;
}

size_t vt_chat_left_out(const vt_chat *chat) { return chat->left_out; }

vt_status vt_chat_leave_out(vt_chat *chat, size_t messages, vt_error *err)
{
    if (messages > chat->count || messages % 2)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "%zu messages cannot be left out of %zu; expected an even number, no more "
                        "than there are",
                        messages, chat->count);
    chat->left_out = messages;
    return VT_OK;
}

/* --- writing out ------------------------------------------------------------------------------ */

static vt_status render(const vt_chat *chat, size_t first, vti_rendering *out, vt_error *err)
{
    if (chat->count % 2 == 0)
        return vti_fail(err, VT_ERR_ARGUMENT, "the last message is not a user's: there is nothing "
                        "to answer");
    vti_chat_view view = {
        .system = chat->system,
        .system_bytes = chat->system_bytes,
        .messages = chat->messages + first,
        .count = chat->count - first,
        .date = chat->date,
        .bos = vt_model_bos(chat->model),
        .eos = vt_model_eos(chat->model),
        .adds_bos = vti_tokenizer_adds_bos(chat->model->tokenizer),
        .skip_thoughts = chat->skip_thoughts,
    };
    return vti_chat_render(&chat->template.form, &view, out, err);
}

vt_status vti_chat_tokens(const vt_chat *chat, size_t first, vt_token **out, size_t *count,
                          vt_error *err)
{
    vti_rendering r;
    *out = NULL;
    VTI_TRY(render(chat, first, &r, err));
    const vti_tokenizer *tokenizer = chat->model->tokenizer;
    size_t capacity = vti_tokenizer_bound(tokenizer, r.bytes) + 2 * r.count + 1;
    vt_token *tokens = malloc(capacity * sizeof *tokens);
    vt_status status =
        tokens ? vti_tokenizer_encode_parts(tokenizer, r.text, r.parts, r.count, tokens, capacity,
                                            count, err)
               : vti_fail(err, VT_ERR_MEMORY, "no memory for %zu tokens", capacity);
    vti_rendering_free(&r);
    if (status == VT_OK)
        *out = tokens;
    else
        free(tokens);
    return status;
}

vt_status vt_chat_tokens(const vt_chat *chat, vt_token *tokens, size_t capacity, size_t *count,
                         vt_error *err)
{
    vt_token *all;
    VTI_TRY(vti_chat_tokens(chat, chat->left_out, &all, count, err));
    if (*count <= capacity) memcpy(tokens, all, *count * sizeof *all);
    free(all);
    if (*count <= capacity) return VT_OK;
    return vti_fail(err, VT_ERR_ARGUMENT, "the conversation has %zu tokens, there is room for %zu",
                    *count, capacity);
}

/* Appends as far as there is room; counts all. */
static void put_text(char *buffer, size_t capacity, size_t *at, const char *text, size_t bytes)
{
    if (*at < capacity) {
        size_t room = capacity - *at;
        memcpy(buffer + *at, text, bytes < room ? bytes : room);
    }
    *at += bytes;
}

vt_status vt_chat_text(const vt_chat *chat, char *buffer, size_t capacity, size_t *bytes,
                       vt_error *err)
{
    vti_rendering r;
    size_t room = capacity ? capacity - 1 : 0, from = 0, name_bytes;
    *bytes = 0;
    VTI_TRY(render(chat, chat->left_out, &r, err));
    for (size_t i = 0; i < r.count; i++) {
        if (r.parts[i].kind == VTI_PART_TOKEN) {
            const char *name = vt_token_bytes(chat->model, r.parts[i].token, &name_bytes);
            if (name) put_text(buffer, room, bytes, name, name_bytes);
        } else {
            put_text(buffer, room, bytes, r.text + from, r.parts[i].bytes);
            from += r.parts[i].bytes;
        }
    }
    if (capacity) buffer[*bytes < room ? *bytes : room] = 0;
    vti_rendering_free(&r);
    return VT_OK;
}
