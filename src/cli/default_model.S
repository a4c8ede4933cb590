/* The default model as part of the program, so that it is found wherever the program is. Page
   aligned like a mapped file. */
        .section .rodata
        .balign 4096
        .globl cli_default_model, cli_default_model_end
cli_default_model:
        .incbin "src/assets/stories-4m-f16.gguf"
cli_default_model_end:
        .byte 0
        .section .note.GNU-stack,"",%progbits
