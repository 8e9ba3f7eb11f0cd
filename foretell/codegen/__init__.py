"""Stage 8: loop nests come in; LLVM IR, and from it machine code with its run-time support, goes out."""
