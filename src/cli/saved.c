/* saved.c: conversations in session files. The messages go along as JSON, in the file's blob. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

enum { SAVED_VERSION = 1 };

/* --- writing ---------------------------------------------------------------------------------- */

/* A JSON string, or {"hex": …} of bytes that are no UTF-8. */
static json_t *text_json(const char *text, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    json_t *string = json_stringn(text, bytes);
    if (string) return string;
    char *hex = malloc(2 * bytes + 1);
    if (!hex) return NULL;
    for (size_t i = 0; i < bytes; i++) {
        hex[2 * i] = digits[(unsigned char)text[i] >> 4];
        hex[2 * i + 1] = digits[(unsigned char)text[i] & 15];
    }
    json_t *object = json_pack("{s:s%}", "hex", hex, 2 * bytes);
    free(hex);
    return object;
}

static json_t *messages_json(const vt_chat *chat)
{
    json_t *list = json_array();
    for (size_t i = 0; i < vt_chat_count(chat); i++) {
        vt_role role;
        const char *text;
        size_t bytes;
        vt_chat_get(chat, i, &role, &text, &bytes);
        if (json_array_append_new(list, text_json(text, bytes)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* NULL: no memory. */
static char *conversation_json(const run_options *o)
{
    json_t *object = json_pack("{s:i}", "voltron_chat", SAVED_VERSION);
    if (o->chat) {
        size_t bytes;
        const char *system = vt_chat_system(o->chat, &bytes);
        json_t *messages = messages_json(o->chat);
        json_t *said = system ? text_json(system, bytes) : json_null();
        if (!messages || !said) {
            json_decref(messages);
            json_decref(said);
            json_decref(object);
            return NULL;
        }
        json_object_set_new(object, "template", json_string(vt_chat_template(o->chat)));
        json_object_set_new(object, "system", said);
        json_object_set_new(object, "messages", messages);
        json_object_set_new(object, "left_out",
                            json_integer((json_int_t)vt_chat_left_out(o->chat)));
    }
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

int run_save(const run_options *o, const char *path)
{
    vt_error err;
    char *blob = conversation_json(o);
    if (!blob)
        return cli_error(VT_ERR_MEMORY, "no memory to save the conversation");
    vt_status status = vt_session_save(o->compute.handle, path, blob, strlen(blob), &err);
    free(blob);
    return status == VT_OK ? CLI_OK : cli_fail(&err);
}

/* --- reading ---------------------------------------------------------------------------------- */

static int not_ours(const char *path, const char *why)
{
    return cli_error(VT_ERR_FORMAT, "%s: %s", path, why);
}

static int digit(char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; }

/* What text_json wrote → a text of *bytes, for free(). NULL: it is none, or no memory. */
static char *take_text(const json_t *value, size_t *bytes)
{
    const json_t *hex = json_object_get(value, "hex");
    const char *string = json_string_value(hex ? hex : value);
    size_t length = json_string_length(hex ? hex : value);
    if (!string || (hex && (length % 2 || strspn(string, "0123456789abcdef") != length)))
        return NULL;
    char *text = malloc(length + 1);
    if (!text) return NULL;
    *bytes = hex ? length / 2 : length;
    for (size_t i = 0; i < *bytes; i++)
        text[i] = hex ? (char)(digit(string[2 * i]) * 16 + digit(string[2 * i + 1])) : string[i];
    return text;
}

static bool is_text(const json_t *value)
{
    size_t bytes;
    char *text = take_text(value, &bytes);
    free(text);
    return text != NULL;
}

static int check_conversation(const run_options *o, const char *path, const json_t *object)
{
    const json_t *messages = json_object_get(object, "messages"), *item;
    const char *template = json_string_value(json_object_get(object, "template"));
    size_t i;
    if (json_integer_value(json_object_get(object, "voltron_chat")) != SAVED_VERSION)
        return not_ours(path, "holds a session, but no conversation of this program");
    if (!template) return not_ours(path, "was saved without a chat template; --no-chat loads it");
    if (strcmp(template, vt_chat_template(o->chat)) != 0)
        return cli_error(VT_ERR_ARGUMENT, "%s was saved with the chat template %s, this chat has "
                                          "%s; --chat-template chooses", path, template,
                         vt_chat_template(o->chat));
    if (!json_is_array(messages)) return not_ours(path, "\"messages\" is not a list");
    json_array_foreach(messages, i, item)
        if (!is_text(item)) return not_ours(path, "a message is not a text");
    const json_t *system = json_object_get(object, "system");
    if (system && !json_is_null(system) && !is_text(system))
        return not_ours(path, "\"system\" is not a text");
    if (json_array_size(messages) % 2)
        return not_ours(path, "the last question has no answer");
    return CLI_OK;
}

static vt_status take_system(vt_chat *chat, const json_t *value, vt_error *err)
{
    size_t bytes = 0;
    char *text = take_text(value, &bytes);
    vt_status status = vt_chat_set_system(chat, text, bytes, err);
    free(text);
    return status;
}

static vt_status take_message(vt_chat *chat, const json_t *value, vt_error *err)
{
    size_t bytes = 0;
    char *text = take_text(value, &bytes);
    vt_role role = vt_chat_count(chat) % 2 ? VT_ROLE_ASSISTANT : VT_ROLE_USER;
    vt_status status = vt_chat_add(chat, role, text, bytes, err);
    free(text);
    return status;
}

/* Into the chat, which is empty then if memory runs out. */
static vt_status take_messages(vt_chat *chat, const json_t *object, vt_error *err)
{
    const json_t *item;
    size_t i;
    vt_chat_truncate(chat, 0);
    vt_status status = take_system(chat, json_object_get(object, "system"), err);
    json_array_foreach(json_object_get(object, "messages"), i, item) {
        if (status != VT_OK) break;
        status = take_message(chat, item, err);
    }
    if (status != VT_OK) return status;
    json_int_t left_out = json_integer_value(json_object_get(object, "left_out"));
    return vt_chat_leave_out(chat, left_out < 0 ? SIZE_MAX : (size_t)left_out, err);
}

int run_load(run_options *o, const char *path)
{
    vt_error err;
    const void *blob;
    size_t bytes;
    if (vt_session_load(o->compute.handle, path, &blob, &bytes, &err) != VT_OK)
        return cli_fail(&err);
    if (!o->chat) return CLI_OK; /* the text goes on from wherever it is */
    /* If the messages do not fit this chat, its next answer puts the session right again. */
    json_t *object = blob ? json_loadb(blob, bytes, JSON_ALLOW_NUL, NULL) : NULL;
    int code = check_conversation(o, path, object);
    if (code == CLI_OK && take_messages(o->chat, object, &err) != VT_OK) code = cli_fail(&err);
    json_decref(object);
    return code;
}
