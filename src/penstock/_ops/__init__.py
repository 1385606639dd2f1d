"""One operator on one block. Pure of threads and clocks: a block goes in, a block comes out."""
