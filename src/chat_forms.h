/* chat_forms.h: the forms that have a name. */
#ifndef VTI_CHAT_FORMS_H
#define VTI_CHAT_FORMS_H

#include "chat_template.h"

extern const vti_chat_form vti_chat_forms[];
extern const size_t vti_chat_form_count;

/* The form called `name`, or NULL. "qwen" is Qwen2.5's, "mistral" that of Mistral 7B v0.3. */
const vti_chat_form *vti_chat_form_find(const char *name);

#endif
