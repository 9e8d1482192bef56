//! For whatever runs worlds by the thousand: they are made of small JSON objects.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
