#include "chat_render.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/utf8.h"

typedef struct slice {
    const char *data;
    size_t bytes;
} slice;

/* --- output ----------------------------------------------------------------------------------- */

static bool grow(vti_rendering *r, size_t bytes)
{
    if (r->count == r->part_room) {
        size_t room = r->part_room * 2 + 16;
        vti_part *parts = realloc(r->parts, room * sizeof *parts);
        if (!parts) return false;
        r->parts = parts;
        r->part_room = room;
    }
    if (r->text_room - r->bytes < bytes) {
        size_t room = (r->bytes + bytes) * 2;
        char *text = realloc(r->text, room);
        if (!text) return false;
        r->text = text;
        r->text_room = room;
    }
    return true;
}

static void put_text(vti_rendering *r, vti_part_kind kind, const char *text, size_t bytes)
{
    if (bytes == 0 || r->failed) return;
    r->failed = !grow(r, bytes);
    if (r->failed) return;
    memcpy(r->text + r->bytes, text, bytes);
    r->bytes += bytes;
    r->parts[r->count++] = (vti_part){.kind = kind, .bytes = bytes};
}

static void put_token(vti_rendering *r, vt_token token)
{
    if (token == VT_TOKEN_NONE || r->failed) return;
    r->failed = !grow(r, 0);
    if (!r->failed) r->parts[r->count++] = (vti_part){.kind = VTI_PART_TOKEN, .token = token};
}

/* A BOS that both the file and the template ask for is written once. */
static void put_bos(vti_rendering *r, vt_token bos)
{
    bool there = r->count == 1 && r->parts[0].kind == VTI_PART_TOKEN;
    if (!there) put_token(r, bos);
}

/* A piece of the form, with its places for tokens and date filled. */
static void put_piece(vti_rendering *r, const vti_chat_view *view, const char *piece)
{
    while (*piece) {
        size_t run = strcspn(piece, VTI_CHAT_BOS VTI_CHAT_EOS VTI_CHAT_DATE);
        put_text(r, VTI_PART_TEMPLATE, piece, run);
        piece += run;
        if (!*piece) break;
        if (*piece == VTI_CHAT_BOS[0]) put_bos(r, view->bos);
        if (*piece == VTI_CHAT_EOS[0]) put_token(r, view->eos);
        if (*piece == VTI_CHAT_DATE[0])
            put_text(r, VTI_PART_PLAIN, view->date, strlen(view->date));
        piece++;
    }
}

static void put_plain(vti_rendering *r, slice text)
{
    put_text(r, VTI_PART_PLAIN, text.data, text.bytes);
}

/* --- white space ------------------------------------------------------------------------------ */

/* What Python's str.strip() takes away. */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Bytes of the white space character that `text` begins with, or 0. */
static size_t space_at(const char *text, size_t bytes)
{
    vti_utf8_kind kind;
    size_t length = vti_utf8_next(text, bytes, &kind), point_bytes;
    if (kind != VTI_UTF8_VALID) return 0;
    return is_space(vti_utf8_codepoint(text, &point_bytes)) ? length : 0;
}

static slice trim_left(slice s)
{
    for (size_t space; s.bytes && (space = space_at(s.data, s.bytes)) != 0; s.bytes -= space)
        s.data += space;
    return s;
}

static slice trim_right(slice s)
{
    while (s.bytes) {
        size_t start = s.bytes - 1;
        while (start && s.bytes - start < 4 && ((unsigned char)s.data[start] & 0xC0) == 0x80)
            start--;
        if (space_at(s.data + start, s.bytes - start) != s.bytes - start) break;
        s.bytes = start;
    }
    return s;
}

static slice trim(slice s) { return trim_right(trim_left(s)); }

static slice trim_as(vti_trim how, slice s)
{
    switch (how) {
    case VTI_TRIM_NOTHING: return s;
    case VTI_TRIM_LEFT: return trim_left(s);
    case VTI_TRIM_CONTENT:
    case VTI_TRIM_CONTENT_SYSTEM:
    case VTI_TRIM_ASSISTANT:
    case VTI_TRIM_TURN: break;
    }
    return trim(s);
}

/* --- turns ------------------------------------------------------------------------------------ */

static slice system_text(const vti_chat_form *form, const vti_chat_view *view)
{
    slice text = {view->system, view->system_bytes};
    if (!text.data && form->default_system)
        text = (slice){form->default_system, strlen(form->default_system)};
    bool trims = form->trim == VTI_TRIM_CONTENT_SYSTEM || form->trim == VTI_TRIM_LEFT;
    if (text.data && trims) text = trim_as(form->trim, text);
    return text;
}

static void put_system_turn(vti_rendering *r, const vti_chat_form *form, const vti_chat_view *view)
{
    slice text = system_text(form, view);
    bool skip = !text.data || (form->skips_empty_system && text.bytes == 0);
    if (skip && !*form->system_preface) return;
    put_piece(r, view, form->system_open);
    put_piece(r, view, form->system_preface);
    if (text.data) put_plain(r, text);
    put_piece(r, view, form->system_close);
}

/* System text at the beginning of a user's turn. The white space that ends it goes too where the
 * turn is trimmed as a whole and nothing follows. */
static void put_system_prefix(vti_rendering *r, const vti_chat_form *form,
                              const vti_chat_view *view, bool nothing_follows)
{
    slice close = {form->system_close, strlen(form->system_close)};
    if (form->trim == VTI_TRIM_TURN && nothing_follows) close = trim_right(close);
    put_piece(r, view, form->system_open);
    put_plain(r, system_text(form, view));
    put_text(r, VTI_PART_TEMPLATE, close.data, close.bytes);
}

static bool system_goes_here(const vti_chat_form *form, const vti_chat_view *view, size_t index)
{
    if (!system_text(form, view).data) return false;
    if (form->system_place == VTI_SYSTEM_FIRST_USER) return index == 0;
    return form->system_place == VTI_SYSTEM_LAST_USER && index + 1 == view->count;
}

static void put_user(vti_rendering *r, const vti_chat_form *form, const vti_chat_view *view,
                     size_t index)
{
    slice text = {view->messages[index].text, view->messages[index].bytes};
    bool system = system_goes_here(form, view, index);
    if (form->trim == VTI_TRIM_TURN && system)
        text = trim_right(text);
    else if (form->trim != VTI_TRIM_ASSISTANT)
        text = trim_as(form->trim, text);
    put_piece(r, view, form->user_open);
    if (system) put_system_prefix(r, form, view, trim(text).bytes == 0);
    if (form->trim != VTI_TRIM_TURN || trim(text).bytes) put_plain(r, text);
    put_piece(r, view, form->user_close);
}

/* What stands behind the last </think>, without the line breaks before it. */
static slice without_thoughts(slice s)
{
    static const char mark[] = "</think>";
    const char *place = NULL, *at = s.data, *end = s.data + s.bytes;
    while ((at = memmem(at, (size_t)(end - at), mark, sizeof mark - 1)) != NULL)
        place = at += sizeof mark - 1;
    if (!place) return s;
    while (place < end && *place == '\n') place++;
    return (slice){place, (size_t)(end - place)};
}

static void put_assistant(vti_rendering *r, const vti_chat_form *form, const vti_chat_view *view,
                          size_t index)
{
    slice text = {view->messages[index].text, view->messages[index].bytes};
    if (form->drops_thoughts) text = without_thoughts(text);
    put_piece(r, view, form->assistant_open);
    put_plain(r, trim_as(form->trim, text));
    put_piece(r, view, form->assistant_close);
}

vt_status vti_chat_render(const vti_chat_form *form, const vti_chat_view *view, vti_rendering *out,
                          vt_error *err)
{
    *out = (vti_rendering){0};
    if (form->begins_with_bos || view->adds_bos) put_bos(out, view->bos);
    if (form->system_place == VTI_SYSTEM_TURN) put_system_turn(out, form, view);
    for (size_t i = 0; i < view->count; i++) {
        if (view->messages[i].role == VT_ROLE_USER)
            put_user(out, form, view, i);
        else
            put_assistant(out, form, view, i);
    }
    put_piece(out, view, form->answer_open);
    if (view->skip_thoughts && form->skip_thoughts) put_piece(out, view, form->skip_thoughts);
    if (!out->failed) return VT_OK;
    vti_rendering_free(out);
    return vti_fail(err, VT_ERR_MEMORY, "no memory to write out the conversation");
}

void vti_rendering_free(vti_rendering *r)
{
    free(r->text);
    free(r->parts);
    *r = (vti_rendering){0};
}
