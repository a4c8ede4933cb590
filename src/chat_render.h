/* chat_render.h: a conversation written out as a template's form wants it. */
#ifndef VTI_CHAT_RENDER_H
#define VTI_CHAT_RENDER_H

#include "chat_template.h"
#include "tokenizer/tokenizer.h"

typedef struct vti_chat_message {
    vt_role role; /* user or assistant, in turns */
    char *text;
    size_t bytes;
} vti_chat_message;

/* What is written: ends where the model is to write its answer, so the last message is a user's. */
typedef struct vti_chat_view {
    const char *system; /* NULL: the form's own, if it has one */
    size_t system_bytes;
    const vti_chat_message *messages;
    size_t count;
    const char *date;
    vt_token bos, eos;  /* VT_TOKEN_NONE: the form's places for them stay empty */
    bool adds_bos;      /* also if the form does not say so */
    bool skip_thoughts; /* the form has the switch */
} vti_chat_view;

/* Zero-initialise. Text and parts as vti_tokenizer_encode_parts takes them. */
typedef struct vti_rendering {
    char *text;
    size_t bytes, text_room;
    vti_part *parts;
    size_t count, part_room;
    bool failed; /* no memory; the rest was dropped */
} vti_rendering;

vt_status vti_chat_render(const vti_chat_form *form, const vti_chat_view *view, vti_rendering *out,
                          vt_error *err);
void vti_rendering_free(vti_rendering *r);

#endif
