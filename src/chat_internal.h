/* chat_internal.h: what chat.c and chat_answer.c share. */
#ifndef VTI_CHAT_INTERNAL_H
#define VTI_CHAT_INTERNAL_H

#include "chat_render.h"

struct vt_chat {
    const vt_model *model;
    vti_chat_template template;
    char *date;
    bool skip_thoughts;
    char *system; /* NULL: the template's own */
    size_t system_bytes;
    vti_chat_message *messages; /* user and assistant in turns */
    size_t count, room;
    size_t left_out; /* the oldest ones, an even number, that no longer fit the context */
};

/* Does the vocabulary have `tag` as one token that templates may write? */
bool vti_chat_has_tag(const vt_model *model, const char *tag);

/* Tokens of the conversation from message `first` (even) on; malloc'd. */
vt_status vti_chat_tokens(const vt_chat *chat, size_t first, vt_token **out, size_t *count,
                          vt_error *err);

#endif
