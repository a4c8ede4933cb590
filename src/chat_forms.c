/* chat_forms.c: the forms that have a name, as the models were published with them. */
#include "chat_forms.h"

#include <string.h>

#define BOS VTI_CHAT_BOS
#define EOS VTI_CHAT_EOS

#define CHATML                                                                                     \
    .system_open = "<|im_start|>system\n", .system_close = "<|im_end|>\n",                         \
    .user_open = "<|im_start|>user\n", .user_close = "<|im_end|>\n",                               \
    .assistant_open = "<|im_start|>assistant\n", .assistant_close = "<|im_end|>\n",                \
    .answer_open = "<|im_start|>assistant\n", .system_preface = ""

#define LLAMA3                                                                                     \
    .system_open = "<|start_header_id|>system<|end_header_id|>\n\n", .system_close = "<|eot_id|>", \
    .user_open = "<|start_header_id|>user<|end_header_id|>\n\n", .user_close = "<|eot_id|>",       \
    .assistant_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",                         \
    .assistant_close = "<|eot_id|>",                                                               \
    .answer_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",                            \
    .trim = VTI_TRIM_CONTENT_SYSTEM, .begins_with_bos = true

#define MISTRAL(open, close, answer)                                                               \
    .user_open = open, .user_close = close, .assistant_open = answer, .assistant_close = EOS,      \
    .answer_open = "", .system_preface = "", .begins_with_bos = true
#define BEFORE_USER(place) .system_open = "", .system_close = "\n\n", .system_place = place

const vti_chat_form vti_chat_forms[] = {
    {.name = "chatml", CHATML},
    {.name = "qwen1.5", CHATML, .default_system = "You are a helpful assistant"},
    {.name = "qwen2", CHATML, .default_system = "You are a helpful assistant."},
    {.name = "qwen2.5", CHATML,
     .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.name = "qwen3", CHATML, .drops_thoughts = true,
     .skip_thoughts = "<think>\n\n</think>\n\n"},
    {.name = "gemma", .system_open = "", .system_close = "\n\n",
     .user_open = "<start_of_turn>user\n", .user_close = "<end_of_turn>\n",
     .assistant_open = "<start_of_turn>model\n", .assistant_close = "<end_of_turn>\n",
     .answer_open = "<start_of_turn>model\n", .system_preface = "",
     .system_place = VTI_SYSTEM_FIRST_USER, .trim = VTI_TRIM_CONTENT, .begins_with_bos = true},
    {.name = "llama-3", LLAMA3, .system_preface = ""},
    {.name = "llama-3.1", LLAMA3,
     .system_preface = "Cutting Knowledge Date: December 2023\nToday Date: " VTI_CHAT_DATE "\n\n"},
    {.name = "llama-2", .system_open = "<<SYS>>\n", .system_close = "\n<</SYS>>\n\n",
     .user_open = BOS "[INST] ", .user_close = " [/INST]", .assistant_open = " ",
     .assistant_close = " " EOS, .answer_open = "", .system_preface = "",
     .system_place = VTI_SYSTEM_FIRST_USER, .trim = VTI_TRIM_TURN},
    {.name = "mistral-v1", MISTRAL(" [INST] ", " [/INST]", " "),
     BEFORE_USER(VTI_SYSTEM_FIRST_USER)},
    {.name = "mistral-v3", MISTRAL("[INST] ", "[/INST]", " "), .trim = VTI_TRIM_ASSISTANT,
     BEFORE_USER(VTI_SYSTEM_LAST_USER)},
    {.name = "mistral-nemo", MISTRAL("[INST]", "[/INST]", ""),
     BEFORE_USER(VTI_SYSTEM_LAST_USER)},
    {.name = "mistral-v7", MISTRAL("[INST] ", "[/INST]", " "),
     .system_open = "[SYSTEM_PROMPT] ", .system_close = "[/SYSTEM_PROMPT]"},
    {.name = "mistral-small", MISTRAL("[INST]", "[/INST]", ""),
     .system_open = "[SYSTEM_PROMPT]", .system_close = "[/SYSTEM_PROMPT]"},
    {.name = "phi-3", .system_open = "<|system|>\n", .system_close = "<|end|>\n",
     .user_open = "<|user|>\n", .user_close = "<|end|>\n", .assistant_open = "<|assistant|>\n",
     .assistant_close = "<|end|>\n", .answer_open = "<|assistant|>\n", .system_preface = "",
     .skips_empty_system = true},
    {.name = "zephyr", .system_open = "<|system|>\n", .system_close = EOS "\n",
     .user_open = "<|user|>\n", .user_close = EOS "\n", .assistant_open = "<|assistant|>\n",
     .assistant_close = EOS "\n", .answer_open = "<|assistant|>\n", .system_preface = ""},
};

const size_t vti_chat_form_count = sizeof vti_chat_forms / sizeof vti_chat_forms[0];

const vti_chat_form *vti_chat_form_find(const char *name)
{
    if (strcmp(name, "qwen") == 0) name = "qwen2.5";
    if (strcmp(name, "mistral") == 0) name = "mistral-v3";
    for (size_t i = 0; i < vti_chat_form_count; i++)
        if (strcmp(vti_chat_forms[i].name, name) == 0) return &vti_chat_forms[i];
    return NULL;
}
