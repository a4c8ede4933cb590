/* chat_template.h: how a model wants a conversation written. */
#ifndef VTI_CHAT_TEMPLATE_H
#define VTI_CHAT_TEMPLATE_H

#include "gguf.h"

/* In the pieces of a form: the model's BOS and EOS token, the date. */
#define VTI_CHAT_BOS "\001"
#define VTI_CHAT_EOS "\002"
#define VTI_CHAT_DATE "\003"

typedef enum vti_system_place {
    VTI_SYSTEM_TURN,       /* a turn of its own */
    VTI_SYSTEM_FIRST_USER, /* at the beginning of the first user turn */
    VTI_SYSTEM_LAST_USER,  /* of the last one */
    VTI_SYSTEM_REFUSED,    /* the model knows no system text */
} vti_system_place;

/* White space of messages, as Python's strip() sees it. */
typedef enum vti_trim {
    VTI_TRIM_NOTHING,
    VTI_TRIM_CONTENT,        /* of user and assistant */
    VTI_TRIM_CONTENT_SYSTEM, /* and of the system text */
    VTI_TRIM_ASSISTANT,      /* only of the assistant */
    VTI_TRIM_TURN,           /* of a user's turn with the system text in it, and of assistants' */
    VTI_TRIM_LEFT,           /* only before the text, of all */
} vti_trim;

#define VTI_CHAT_TEMPLATE_KEY "tokenizer.chat_template"

/* What goes around the messages. Strings belong to others. */
typedef struct vti_chat_form {
    const char *name;
    const char *system_open, *system_close;
    const char *user_open, *user_close;
    const char *assistant_open, *assistant_close;
    const char *answer_open;    /* the beginning of the turn that the model is to write */
    const char *system_preface; /* "" or what begins the system turn, which then is always there */
    const char *default_system; /* NULL: none */
    const char *skip_thoughts;  /* behind answer_open for no thoughts; NULL: no switch */
    vti_system_place system_place;
    vti_trim trim;
    bool begins_with_bos;
    bool drops_thoughts;        /* earlier answers lose what stands before their </think> */
    bool skips_empty_system;
    bool dated_today;           /* the date is today's, else VTI_CHAT_FIXED_DATE */
} vti_chat_form;

/* What Llama 3.1's template says unless told another date. */
#define VTI_CHAT_FIXED_DATE "26 Jul 2024"

typedef struct vti_chat_template {
    vti_chat_form form;
    char *owned[4]; /* strings of the form that came from the file */
} vti_chat_template;

/* "chatml qwen …": every name that vti_chat_template_named takes. */
extern const char vti_chat_template_names[];

/* ERR_ARGUMENT lists the names. */
vt_status vti_chat_template_named(const char *name, vti_chat_template *out, vt_error *err);

/* The file's own. ERR_UNSUPPORTED: it has none, or one that is not recognised. */
vt_status vti_chat_template_read(const vt_gguf *gguf, vti_chat_template *out, vt_error *err);

/* The template `source`, which is not recognised if false is returned. */
bool vti_chat_template_recognise(const char *source, size_t bytes, vti_chat_template *out);

void vti_chat_template_free(vti_chat_template *t);

#endif
