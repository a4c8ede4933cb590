#include "vocabulary.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS_KEY "tokenizer.ggml.tokens"
#define TYPES_KEY "tokenizer.ggml.token_type"

/* Printable Latin-1 characters stand for themselves, the other 68 bytes follow from U+0100 on. */
static bool is_printable(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

/* The byte that U+0100 + `index` stands for, or -1. */
static int unprintable_byte(uint32_t index)
{
    if (index <= 0x20) return (int)index;
    if (index <= 0x42) return (int)(index - 0x21 + 0x7F);
    return index == 0x43 ? 0xAD : -1;
}

size_t vti_alphabet_spell(unsigned char byte, char text[2])
{
    uint32_t point = byte;
    if (!is_printable(byte))
        point = 0x100u + (byte <= 0x20 ? byte : byte == 0xAD ? 0x43u : byte - 0x7Fu + 0x21u);
    if (point < 0x80) {
        text[0] = (char)point;
        return 1;
    }
    text[0] = (char)(0xC0 | point >> 6);
    text[1] = (char)(0x80 | (point & 0x3F));
    return 2;
}

bool vti_alphabet_read(const char *text, size_t bytes, char *out, size_t *out_bytes)
{
    if (vti_utf8_valid_prefix(text, bytes) != bytes) return false;
    size_t count = 0;
    for (size_t i = 0, length; i < bytes; i += length) {
        uint32_t point = vti_utf8_codepoint(text + i, &length);
        int byte = -1;
        if (point >= 0x100)
            byte = unprintable_byte(point - 0x100);
        else if (is_printable(point))
            byte = (int)point;
        if (byte < 0) return false;
        out[count++] = (char)byte;
    }
    *out_bytes = count;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* Value of "<0x0A>", or -1 if it is not written so. */
static int byte_token_value(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

size_t vti_spaces_from_marks(const char *text, size_t bytes, char *out)
{
    static const char mark[] = "\xE2\x96\x81"; /* U+2581 */
    size_t count = 0;
    for (size_t i = 0; i < bytes;) {
        bool is_mark = bytes - i >= 3 && memcmp(text + i, mark, 3) == 0;
        out[count++] = is_mark ? ' ' : text[i];
        i += is_mark ? 3 : 1;
    }
    return count;
}

/* Gemma has runs of U+2581 among its user-defined tokens. The published tokenizer looks for those
 * in the text as it is, where spaces are still spaces, and gets such runs by merging like any
 * piece. */
static bool is_run_of_marks(const char *spaces, size_t bytes, size_t text_bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (spaces[i] != ' ') return false;
    return text_bytes == 3 * bytes;
}

/* Adds what token `id` stands for; `room` holds its text's length. */
static vt_status add_bytes(vti_vocabulary *vocabulary, vti_spelling spelling, uint32_t id,
                           char *room, vt_error *err)
{
    size_t bytes, room_bytes;
    const char *text = vti_strings_get(&vocabulary->texts, id, &bytes);
    unsigned type = vocabulary->types[id];
    if (type == VTI_TOKEN_BYTE) {
        int value = byte_token_value(text, bytes);
        if (value < 0)
            return vti_fail(err, VT_ERR_FORMAT,
                            TOKENS_KEY " %u is a byte token but its text \"%.*s\" is not "
                            "\"<0x00>\" to \"<0xFF>\"", id, (int)(bytes < 32 ? bytes : 32), text);
        room[0] = (char)value;
        vti_strings_add(&vocabulary->bytes, room, 1);
    } else if (spelling == VTI_SPELLING_SPACE_MARK) {
        room_bytes = vti_spaces_from_marks(text, bytes, room);
        vti_strings_add(&vocabulary->bytes, room, room_bytes);
        if (type == VTI_TOKEN_USER_DEFINED && is_run_of_marks(room, room_bytes, bytes))
            vocabulary->types[id] = VTI_TOKEN_NORMAL;
    } else if (vti_token_is_named(type)) {
        vti_strings_add(&vocabulary->bytes, text, bytes);
    } else if (vti_alphabet_read(text, bytes, room, &room_bytes)) {
        vti_strings_add(&vocabulary->bytes, room, room_bytes);
    } else { /* not spelled in the alphabet: it can only be an added token, shown as it is */
        vti_strings_add(&vocabulary->bytes, text, bytes);
    }
    return VT_OK;
}

static vt_status read_texts(const vt_gguf *gguf, vti_vocabulary *vocabulary, size_t *longest,
                            vt_error *err)
{
    const vti_gguf_value *value;
    VTI_TRY(vti_gguf_get_array(gguf, TOKENS_KEY, VTI_GGUF_STRING, true, &value, err));
    if (value->count == 0 || value->count > VTI_VOCABULARY_MAX)
        return vti_fail(err, VT_ERR_FORMAT, TOKENS_KEY " has %llu tokens, expected 1 to %u",
                        (unsigned long long)value->count, VTI_VOCABULARY_MAX);
    uint64_t total = 0;
    const unsigned char *cursor = value->data;
    for (uint64_t i = 0; i < value->count; i++) {
        vti_gguf_string text = vti_gguf_next_string(&cursor);
        if (text.bytes > UINT32_MAX - total)
            return vti_fail(err, VT_ERR_FORMAT, TOKENS_KEY " is larger than 4 GiB");
        total += text.bytes;
        if (text.bytes > *longest) *longest = (size_t)text.bytes;
    }
    uint32_t count = (uint32_t)value->count;
    VTI_TRY(vti_strings_init(&vocabulary->texts, count, (size_t)total, err));
    VTI_TRY(vti_strings_init(&vocabulary->bytes, count, (size_t)total, err));
    cursor = value->data;
    for (uint32_t i = 0; i < count; i++) {
        vti_gguf_string text = vti_gguf_next_string(&cursor);
        vti_strings_add(&vocabulary->texts, text.data, (size_t)text.bytes);
    }
    return VT_OK;
}

static vt_status read_types(const vt_gguf *gguf, vti_vocabulary *vocabulary, vt_error *err)
{
    uint32_t count = vocabulary->texts.count;
    const vti_gguf_value *value;
    VTI_TRY(vti_gguf_get_array(gguf, TYPES_KEY, VTI_GGUF_I32, false, &value, err));
    if (value && value->count != count)
        return vti_fail(err, VT_ERR_FORMAT, TYPES_KEY " has %llu entries, expected one for each of "
                        "the %u tokens", (unsigned long long)value->count, count);
    vocabulary->types = malloc(count);
    if (!vocabulary->types) return vti_fail(err, VT_ERR_MEMORY, "no memory for %u tokens", count);
    memset(vocabulary->types, VTI_TOKEN_NORMAL, count);
    for (uint32_t i = 0; value && i < count; i++) {
        double type = vti_gguf_number_at(value, i);
        if (!(type >= VTI_TOKEN_NORMAL && type <= VTI_TOKEN_BYTE))
            return vti_fail(err, VT_ERR_FORMAT, TYPES_KEY " %u is %.0f, expected 1 to 6", i, type);
        vocabulary->types[i] = (uint8_t)type;
    }
    return VT_OK;
}

static vt_status read_vocabulary(const vt_gguf *gguf, vti_spelling spelling,
                                 vti_vocabulary *vocabulary, vt_error *err)
{
    size_t longest = 0;
    VTI_TRY(read_texts(gguf, vocabulary, &longest, err));
    VTI_TRY(read_types(gguf, vocabulary, err));
    char *room = malloc(longest + 1);
    if (!room) return vti_fail(err, VT_ERR_MEMORY, "no memory for a token of %zu bytes", longest);
    vt_status status = VT_OK;
    for (uint32_t i = 0; i < vocabulary->texts.count && status == VT_OK; i++)
        status = add_bytes(vocabulary, spelling, i, room, err);
    free(room);
    return status;
}

vt_status vti_vocabulary_open(const vt_gguf *gguf, vti_spelling spelling, vti_vocabulary *out,
                              vt_error *err)
{
    *out = (vti_vocabulary){0};
    vt_status status = read_vocabulary(gguf, spelling, out, err);
    if (status != VT_OK) vti_vocabulary_free(out);
    return status;
}

void vti_vocabulary_free(vti_vocabulary *vocabulary)
{
    vti_strings_free(&vocabulary->texts);
    vti_strings_free(&vocabulary->bytes);
    free(vocabulary->types);
    *vocabulary = (vti_vocabulary){0};
}
