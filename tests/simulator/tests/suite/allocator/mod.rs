//! The allocator of programs that run worlds by the thousand: worlds consist of small JSON objects.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
