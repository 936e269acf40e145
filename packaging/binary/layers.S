/* The compressed layers, as parts of the program. */
    .section .rodata
    .global runtime_begin, runtime_end, postgres_begin, postgres_end
    .balign 64
runtime_begin:
    .incbin "runtime.tar.zst"
runtime_end:
    .balign 64
postgres_begin:
    .incbin "postgres.tar.zst"
postgres_end:
    .section .note.GNU-stack, "", @progbits
