//! The `towpath` binary: reads the command line and does what it says.

mod cli;

/// A call is a few dozen small pieces of memory, made on one thread and dropped on another: that is what this allocator is good at.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
