/* The data file of device classes as part of the library. */
        .section .rodata
        .globl vti_devices_json, vti_devices_json_end
vti_devices_json:
        .incbin "src/assets/devices.json"
vti_devices_json_end:
        .byte 0
        .section .note.GNU-stack,"",%progbits
