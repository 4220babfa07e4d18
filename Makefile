# make demo · make test · make check · make bench · make docs · make bless
